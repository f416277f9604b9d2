"""The Euclidean ball, projected in a quadratic norm."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains.domain import (
    Domain,
    Projection,
    require_like,
    require_quadratic,
    select,
)

# Newton's method below needs 5 to 15 steps; the limit only bounds the loop.
MOST_NEWTON_STEPS = 100


def l2_ball(radius, center=0.0) -> Domain:
    r"""The points with :math:`\|w - c\|_2 \le r`, for quadratic norms.

    Outside the ball the KKT conditions are :math:`A (v - w) = \mu (w - c)` with
    :math:`\|w - c\|_2 = r`. In the eigenbasis of ``A``, with eigenvalues :math:`\alpha_i` and
    :math:`y = v - c`, that is the secular equation

    .. math:: \sum_i \Big(\frac{\alpha_i y_i}{\alpha_i + \mu}\Big)^2 = r^2.

    :math:`1/\|w(\mu) - c\|_2` is concave and increasing in :math:`\mu`, so Newton's method on it
    climbs from 0 to the root without ever passing it.

    Args:
      radius: a positive number.
      center: a number, or a tree like the parameters.
    """
    _arguments.require_positive("radius", radius, "the radius of the ball")
    for leaf in jax.tree.leaves(center):
        _arguments.require(leaf, np.isfinite, "The center of `l2_ball` must be finite.")

    def centered(point):
        dtype = _precision.working_dtype(point)
        if jax.tree_util.all_leaves([center]) and jnp.ndim(center) == 0:
            middle = optax.tree.full_like(point, jnp.asarray(center, dtype))
        else:
            require_like("The center of `l2_ball`, unless a number,", center, point)
            middle = _precision.cast(center, dtype)
        return middle, optax.tree.sub(point, middle), jnp.asarray(radius, dtype)

    def project(norm, norm_state, point):
        require_quadratic("l2_ball", norm)
        middle, arrow, r = centered(point)
        flat, unravel = ravel_pytree(arrow)
        basis = norm.eigenbasis(norm_state)
        values = jnp.broadcast_to(jnp.asarray(basis.values, flat.dtype), flat.shape)
        rotated = flat if basis.vectors is None else flat @ basis.vectors
        multiplier, rotated_point = _solve_secular_equation(values, rotated, r)
        rotated_residual = multiplier * rotated_point / values

        def back(vector):
            return unravel(vector if basis.vectors is None else basis.vectors @ vector)

        from_center = back(rotated_point)
        outside = Projection(
            point=optax.tree.add(middle, from_center),
            residual=back(rotated_residual),
            normal=optax.tree.scale(multiplier, from_center),
        )
        zeros = optax.tree.zeros_like(point)
        inside = Projection(point, zeros, zeros)
        return select(jnp.vdot(flat, flat) <= r**2, inside, outside)

    def contains(point):
        _, arrow, r = centered(point)
        return optax.tree.norm(arrow) <= r * (1 + _precision.rounding(r.dtype))

    def support(gradient):
        middle, _, r = centered(gradient)
        return _precision.inner(gradient, middle) + r * optax.tree.norm(gradient)

    return Domain(project, contains, support)


def _solve_secular_equation(values, target, radius):
    """The multiplier ``mu`` and the point ``values * target / (values + mu)`` of length radius."""
    # In units of the target's largest entry, squares neither overflow nor vanish.
    unit = jnp.max(jnp.abs(target), initial=0)
    unit = jnp.where(unit > 0, unit, 1)
    arrow, length_wanted = target / unit, radius / unit

    def point_at(multiplier):
        return values * arrow / (values + multiplier)

    def climb(carry):
        _, multiplier, steps = carry
        point = point_at(multiplier)
        squared_length = jnp.vdot(point, point)
        excess = jnp.sqrt(squared_length) / length_wanted - 1
        slope = jnp.vdot(point, point / (values + multiplier))
        climbed = multiplier + jnp.maximum(excess, 0) * squared_length / jnp.where(
            slope > 0, slope, 1
        )
        return multiplier, climbed, steps + 1

    def climbing(carry):
        previous, multiplier, steps = carry
        return (multiplier > previous) & (steps < MOST_NEWTON_STEPS)

    zero = jnp.zeros((), target.dtype)
    _, multiplier, _ = jax.lax.while_loop(climbing, climb, (zero - 1, zero, jnp.int32(0)))
    point = point_at(multiplier)
    length = jnp.sqrt(jnp.vdot(point, point))
    return multiplier, point * (radius / jnp.where(length > 0, length, 1))
