"""How large a coordinate is, judged by its first gradient."""

import functools

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision


def first_seen_squares(gradient: optax.Updates, largest_squares: optax.Updates) -> optax.Updates:
    r"""The gradient's squares, had it been as large as the largest one so far.

    A norm that measures each coordinate in units of its first gradient must not take a small
    gradient for a small coordinate. The coordinates known before tell how small this gradient is:
    the one nearest to its own largest, at a part :math:`\rho = \max_j |g_j| / m_j` of it. The
    others are enlarged by :math:`1/\rho`.

    Otherwise, as a loss is driven to zero, every rare coordinate that enters would believe its
    vanishing gradient to be a full one, and the wealth would explode.

    Args:
      gradient: a tree.
      largest_squares: the square of the largest gradient of each coordinate, zero if unknown.
    """
    parts = jax.tree.map(
        lambda g, square: jnp.max(_precision.ratio(g**2, square), initial=0),
        gradient,
        largest_squares,
    )
    nearest = functools.reduce(
        jnp.maximum, jax.tree.leaves(parts), jnp.zeros((), _precision.working_dtype(gradient))
    )
    part = jnp.where((nearest > 0) & (nearest < 1), nearest, 1)
    return jax.tree.map(lambda g: g**2 / part, gradient)
