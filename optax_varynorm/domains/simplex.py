"""The simplex and the l_1 ball: both cut every coordinate by one threshold."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains.by_constraint import domain_of
from optax_varynorm.domains.constraint import Constraint, Face, Faces
from optax_varynorm.domains.domain import Domain, fill_like, require_finite
from optax_varynorm.domains.in_kernels import add_up, largest


def simplex(scale=1.0) -> Domain:
    r"""The points with :math:`w_i \ge 0,\ \sum_i w_i = s`; O(d log d) in a diagonal norm.

    All leaves of the parameters together make one point of the simplex.

    Args:
      scale: ``s``, a positive number.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.simplex()
    >>> bool(domain.contains(jnp.array([0.25, 0.75])))
    True
    """
    _arguments.require_positive("scale", scale, "the sum of the coordinates")

    def constraint(point):
        total = jnp.asarray(scale, _precision.working_dtype(point))

        def inside(z, slack):
            return jnp.all(z >= 0) & (jnp.abs(jnp.sum(z) - total) <= jnp.sum(slack))

        def weighted(z, weights):
            return cut(z, 1 / weights, total)

        def nearest(z):
            return cut(z, jnp.ones_like(z), total)

        def slope(z):
            return _remove_mean(nearest(z) > 0, jnp.ones_like(z))

        return Constraint(
            nearest, slope, inside, nearest_weighted=weighted, faces=_simplex_faces(total)
        )

    def support(gradient):
        flat, _ = ravel_pytree(gradient)
        return jnp.asarray(scale, flat.dtype) * jnp.max(flat)

    return domain_of(constraint, support)


def l1_ball(radius, center=0.0) -> Domain:
    r"""The points with :math:`\sum_i |w_i - c_i| \le r`; O(d log d) in a diagonal norm.

    Args:
      radius: a positive number.
      center: a number, or a tree like the parameters.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.l1_ball(1.0)
    >>> bool(domain.contains(jnp.array([0.6, -0.6])))
    False
    """
    _arguments.require_positive("radius", radius, "the radius of the l_1 ball")
    require_finite("The center of `l1_ball`", center)

    def centered(point):
        middle, _ = ravel_pytree(fill_like("The center of `l1_ball`", center, point))
        return middle, jnp.asarray(radius, middle.dtype)

    def constraint(point):
        middle, r = centered(point)

        def inside(z, slack):
            return jnp.sum(jnp.abs(z - middle)) <= r + jnp.sum(slack)

        def weighted(z, weights):
            arrow = z - middle
            cut_arrow = jnp.sign(arrow) * cut(jnp.abs(arrow), 1 / weights, r)
            return jnp.where(jnp.sum(jnp.abs(arrow)) <= r, z, middle + cut_arrow)

        def nearest(z):
            return weighted(z, jnp.ones_like(z))

        def slope(z):
            arrow = z - middle
            within = jnp.sum(jnp.abs(arrow)) <= r
            times = _remove_mean(nearest(z) != middle, jnp.sign(arrow))
            return lambda columns: jnp.where(within, columns, times(columns))

        return Constraint(
            nearest, slope, inside, nearest_weighted=weighted, faces=_l1_faces(middle, r)
        )

    def support(gradient):
        flat, _ = ravel_pytree(gradient)
        middle, r = centered(gradient)
        return flat @ middle + r * jnp.max(jnp.abs(flat), initial=0)

    return domain_of(constraint, support)


def _simplex_faces(total: jax.Array) -> Faces:
    r"""Entries :math:`y_i \ge 0` with a given sum: :math:`\Pi_i(z) = \max(0, z - \tau\lambda)`."""

    def nearest(z, steps, levels):
        return jnp.maximum(z - steps * levels[0], 0)

    def at(z, steps, levels):
        free = nearest(z, steps, levels) > 0
        # One entry has to be: at a level too high, the one that a lower level frees first.
        highest = z / steps
        free = jnp.where(jnp.any(free), free, highest == largest(highest))
        return Face(~free, jnp.zeros_like(z), free.astype(z.dtype)[None, :], total[None])

    def repair(y):
        positive = jnp.maximum(y, 0)
        size = add_up(positive)
        return positive * (total / jnp.where(size > 0, size, 1))

    return Faces(lambda multipliers: largest(multipliers)[None], nearest, at, repair)


def _l1_faces(middle: jax.Array, radius: jax.Array) -> Faces:
    r"""A bounded sum of :math:`|y_i - c_i|`: :math:`\Pi_i` moves towards the center."""

    def shrink(z, steps, levels):
        arrow = z - middle
        cut_off = steps * jnp.maximum(levels[0], 0)
        return jnp.sign(arrow) * jnp.maximum(jnp.abs(arrow) - cut_off, 0)

    def at(z, steps, levels):
        shrunk = shrink(z, steps, levels)
        active = (levels[0] > 0) | (add_up(jnp.abs(shrunk)) > radius)
        signs = jnp.where(active, jnp.sign(shrunk), 0)
        fixed = active & (shrunk == 0)
        total = jnp.where(active, radius + add_up(signs * middle), 0)
        return Face(fixed, jnp.where(fixed, middle, 0), signs[None, :], total[None])

    def repair(y):
        arrow = y - middle
        size = add_up(jnp.abs(arrow))
        return middle + arrow * jnp.where(size > radius, radius / jnp.where(size > 0, size, 1), 1)

    return Faces(
        levels=lambda multipliers: largest(jnp.abs(multipliers))[None],
        nearest=lambda *arguments: middle + shrink(*arguments),
        at=at,
        repair=repair,
    )


def cut(values: jax.Array, speeds: jax.Array, total: jax.Array) -> jax.Array:
    r""":math:`\max(0, x_i - \theta c_i)` with the :math:`\theta` that makes the sum ``total``.

    The minimizer of :math:`\sum_i (x_i - w_i)^2 / c_i` on the simplex. Coordinate ``i`` is positive
    while :math:`\theta < x_i / c_i`, so with these ratios sorted the sum is linear between two
    neighbours, and the right piece is the last whose threshold lies below its own ratio.
    """
    if not values.size:
        return values
    # Everything by position: a compiler may round one ratio differently in two places.
    order = jnp.argsort(-values / speeds)
    x, c = values[order], speeds[order]
    # Measured from the largest ratio, the values that matter are as small as the total, however
    # far away the point is.
    x = (x - x[0] / c[0] * c).at[0].set(0)
    thresholds = (jnp.cumsum(x) - total) / jnp.cumsum(c)
    place = jnp.arange(x.size)
    positive = place < jnp.sum(x > thresholds * c)
    # Summed anew, over the coordinates that stay alone.
    theta = (jnp.sum(jnp.where(positive, x, 0)) - total) / jnp.sum(jnp.where(positive, c, 0))
    result = jnp.where(positive, jnp.maximum(x - theta * c, 0), 0)
    return jnp.zeros_like(values).at[order].set(result * (total / jnp.sum(result)))


def _remove_mean(positive: jax.Array, signs: jax.Array):
    r"""``X -> J X`` with :math:`J = D - n n^\top/|n|^2`: free coordinates, sum fixed."""
    direction = jnp.where(positive, signs, 0)
    count = jnp.maximum(jnp.sum(jnp.abs(direction)), 1)

    def times(columns):
        free = jnp.where(positive[:, None], columns, 0)
        return free - jnp.outer(direction, direction @ free) / count

    return times
