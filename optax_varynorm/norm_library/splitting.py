r"""The duality map of a sum of norms, by splitting a gradient among them.

.. math:: \min_{a_1, \dots, a_m} \phi(a) = \sum_i \tfrac12\|a_i\|_{i,\star}^2,
          \qquad \sum_i a_i = g,

where the last part takes the rest. The gradient of :math:`\phi` in :math:`a_i` is
:math:`\mathrm{to\_primal}_i(a_i) - \mathrm{to\_primal}_m(a_m)`: at the minimum all parts agree on
one point. Dual norms are smooth where norms are strongly convex: Newton's method on the split
meets bounded second derivatives, while those of an l_p norm are infinite at a zero coordinate.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optax_varynorm import _precision
from optax_varynorm.norm_library import convex_newton


class Split(NamedTuple):
    """Attributes:
    splits: all parts of the gradient but the last, one a row.
    point: ``to_primal`` of the gradient, by the first part: where that is an l_p norm, small
      coordinates are as precise as its ``to_dual`` needs them.
    solver_residual: how far the points of all others are from that of the last part, relative to
      its length.
    """

    splits: jax.Array
    point: jax.Array
    solver_residual: jax.Array


def split(maps: tuple[Callable, ...], gradient: jax.Array, guess: jax.Array) -> Split:
    """Share out a flat gradient among norms.

    Args:
      maps: ``to_primal`` of each norm.
      gradient: ``g``.
      guess: splits to start from, if they are better than multiples of the gradient.
    """
    *firsts, last = maps
    if not firsts or not gradient.size:
        return Split(guess, last(gradient), jnp.zeros((), gradient.dtype))
    largest = jnp.max(jnp.abs(gradient))
    unit = jnp.where(largest > 0, largest, 1)
    target = gradient / unit
    shape = guess.shape

    def measure(flat):
        splits = flat.reshape(shape)
        remaining = target - jnp.sum(splits, axis=0)
        last_point = last(remaining)
        points = jnp.stack([part(a) for part, a in zip(firsts, splits, strict=True)])
        slope = (points - last_point[None]).ravel()
        return convex_newton.Measure(
            value=(jnp.vdot(splits, points) + jnp.vdot(remaining, last_point)) / 2,
            slope=slope,
            error=_precision.ratio(_precision.length(slope), _precision.length(last_point)),
        )

    # On the ray of the gradient, the shares are inverse to the squared dual norms.
    squares = jnp.stack([jnp.vdot(target, part(target)) for part in maps])
    shares = 1 / jnp.maximum(squares, jnp.finfo(target.dtype).tiny)
    cold = (shares[:-1, None] / jnp.sum(shares) * target[None]).ravel()
    starts = jnp.stack([(guess / unit).ravel(), cold])
    start = starts[jnp.argmin(jax.vmap(measure)(starts).value)]
    flat, residual = convex_newton.solve(measure, start)
    splits = flat.reshape(shape)
    return Split(unit * splits, unit * firsts[0](splits[0]), residual)


def rescale(splits: jax.Array, of: jax.Array, to: jax.Array) -> jax.Array:
    """Splits of one gradient as a guess for those of another, nearly on its ray."""
    return _precision.ratio(jnp.vdot(of, to), jnp.vdot(of, of)) * splits
