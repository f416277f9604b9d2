"""How large a coordinate is, judged by its first gradient."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision

# No coordinate counts as smaller than this part of the largest one.
SMALLEST_COORDINATE = 1e-4


def first_seen_squares(gradient: optax.Updates, largest_squares: optax.Updates) -> optax.Updates:
    r"""The gradient's squares, had it been as large as the largest one so far.

    A norm that measures each coordinate in units of its first gradient must not take a small
    gradient for a small coordinate. The coordinates known before tell how small this gradient is:
    the one nearest to its own largest, at a part :math:`\rho = \max_j |g_j| / m_j` of it. The
    others are enlarged by :math:`1/\rho`, up to the largest of all. Otherwise, as a loss is driven
    to zero, every rare coordinate that enters would believe its vanishing gradient to be a full
    one, and the wealth would explode.

    For the same reason a coordinate counts as a ten-thousandth of the largest one at least: a first
    gradient that is nothing but rounding would send its coordinate off to infinity.

    Args:
      gradient: a tree.
      largest_squares: the square of the largest gradient of each coordinate, zero if unknown.
    """
    nearest = _largest(
        jax.tree.map(lambda g, top: _precision.ratio(g**2, top), gradient, largest_squares)
    )
    part = jnp.where((nearest > 0) & (nearest < 1), nearest, 1)
    squares = jax.tree.map(jnp.square, gradient)
    top = jnp.maximum(_largest(squares), _largest(largest_squares))
    floor = SMALLEST_COORDINATE**2 * top
    return jax.tree.map(
        lambda square: jnp.where(square > 0, jnp.clip(square / part, floor, top), 0), squares
    )


def _largest(tree: Any) -> jax.Array:
    tops = [jnp.max(leaf, initial=0) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.maximum, tops, jnp.zeros((), _precision.working_dtype(tree)))
