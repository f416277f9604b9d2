"""Bounds on each coordinate: box, non-negative numbers, the l_inf ball."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains.by_constraint import domain_of
from optax_varynorm.domains.constraint import Constraint, Face, Faces
from optax_varynorm.domains.domain import Domain, fill_like, require_finite, require_no_nan


def box(lower, upper) -> Domain:
    r"""The points with :math:`l_i \le w_i \le u_i`; O(d) in a diagonal norm.

    Args:
      lower: a number, or a tree like the parameters; ``-inf`` where there is no bound.
      upper: the same, ``inf`` where there is no bound.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.box(-1.0, jnp.array([1.0, 3.0]))
    >>> bool(domain.contains(jnp.array([0.5, 2.0])))
    True
    """
    require_no_nan("The lower bound of `box`", lower)
    require_no_nan("The upper bound of `box`", upper)
    _require_some_room(lower, upper)

    def bounds(point):
        low = fill_like("The lower bound of `box`", lower, point)
        return low, fill_like("The upper bound of `box`", upper, point)

    return _between(bounds)


def non_negative() -> Domain:
    r"""The points with :math:`w_i \ge 0`; O(d) in a diagonal norm.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.non_negative()
    >>> bool(domain.contains(jnp.array([0.9, -0.9])))
    False
    """
    return box(0.0, np.inf)


def linf_ball(radius, center=0.0) -> Domain:
    r"""The points with :math:`|w_i - c_i| \le r_i`; O(d) in a diagonal norm.

    Args:
      radius: a number, or a tree like the parameters.
      center: a number, or a tree like the parameters.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.linf_ball(1.0)
    >>> bool(domain.contains(jnp.array([0.9, -0.9])))
    True
    """
    require_finite("The center of `linf_ball`", center)
    for leaf in jax.tree.leaves(radius):
        _arguments.require_numbers(radius=leaf)
        _arguments.require(
            leaf,
            lambda r: (r >= 0) & np.isfinite(r),
            "The radius of `linf_ball` must be finite and not negative, or the ball is empty. "
            f"It is {radius}; for no bound at all use `box`.",
        )

    def bounds(point):
        middle = fill_like("The center of `linf_ball`", center, point)
        reach = fill_like("The radius of `linf_ball`", radius, point)
        return optax.tree.sub(middle, reach), optax.tree.add(middle, reach)

    return _between(bounds)


def _between(bounds) -> Domain:
    def constraint(point):
        lower, upper = (ravel_pytree(bound)[0] for bound in bounds(point))

        def slope(z):
            free = ((z > lower) & (z < upper))[:, None]
            return lambda columns: jnp.where(free, columns, 0)

        def nearest(z):
            return jnp.clip(z, lower, upper)

        return Constraint(
            nearest=nearest,
            slope=slope,
            inside=lambda z, slack: jnp.all((lower <= z) & (z <= upper)),
            nearest_weighted=lambda z, weights: nearest(z),
            faces=bounded_entries(lower, upper),
        )

    def support(gradient):
        lower, upper = bounds(gradient)
        # An absent gradient gains nothing from an absent bound.
        best = jax.tree.map(
            lambda g, low, high: jnp.where(g == 0, 0, jnp.where(g > 0, high, low) * g),
            gradient,
            lower,
            upper,
        )
        return _precision.inner(best, optax.tree.ones_like(best))

    return domain_of(constraint, support)


def bounded_entries(lower: jax.Array, upper: jax.Array) -> Faces:
    """The faces of a box."""

    def at(z, steps, levels):
        del steps, levels
        low, high = z <= lower, z >= upper
        return Face(
            fixed=low | high,
            values=jnp.where(low, lower, jnp.where(high, upper, 0)),
            normals=jnp.zeros((0, z.size), z.dtype),
            totals=jnp.zeros((0,), z.dtype),
        )

    return Faces(
        levels=lambda multipliers: multipliers[:0],
        nearest=lambda z, steps, levels: jnp.clip(z, lower, upper),
        at=at,
        repair=lambda y: jnp.clip(y, lower, upper),
    )


def _require_some_room(lower, upper):
    lows, highs = jax.tree.leaves(lower), jax.tree.leaves(upper)
    if len(lows) != len(highs) and 1 not in (len(lows), len(highs)):
        raise ValueError(
            f"The bounds of `box` must be numbers or trees like the parameters, but the lower one "
            f"has {len(lows)} leaves and the upper one {len(highs)}."
        )
    for low, high in zip(lows * len(highs), highs * len(lows), strict=False):
        if not (_arguments.is_known(low) and _arguments.is_known(high)):
            continue
        low, high = np.asarray(low, float), np.asarray(high, float)
        if low.ndim and high.ndim and low.shape != high.shape:
            raise ValueError(
                f"The bounds of `box` have the shapes {low.shape} and {high.shape}. They must be "
                "numbers, or shaped like the parameters."
            )
        if np.any(low > high) or np.any(low == np.inf) or np.any(high == -np.inf):
            raise ValueError(
                "`box` is empty: a lower bound exceeds its upper bound. Exchange or widen them."
            )
