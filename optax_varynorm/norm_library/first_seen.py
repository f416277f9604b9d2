"""How large a coordinate is, judged by its first gradient."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision

# No coordinate counts as smaller than this part of the largest one.
SMALLEST_COORDINATE = 1e-4


class FirstSize(NamedTuple):
    """What stands for the first square of a coordinate: its gradient's, enlarged and cut.

    Attributes:
      factor: one over how small this gradient is: the largest part, squared, of a coordinate's own
        largest.
      least: no coordinate counts as smaller.
      most: nor as larger.
    """

    factor: jax.Array
    least: jax.Array
    most: jax.Array

    def of(self, square: jax.Array) -> jax.Array:
        """The square of a first gradient as it counts; zero stays zero."""
        return jnp.where(square > 0, jnp.clip(square * self.factor, self.least, self.most), 0)


def first_size(gradient: optax.Updates, largest_squares: optax.Updates) -> FirstSize:
    r"""How to count the square of a coordinate's first gradient, had it been as large as possible.

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
    squares = jax.tree.map(jnp.square, gradient)
    most = jnp.maximum(_largest(squares), _largest(largest_squares))
    is_small = (nearest > 0) & (nearest < 1)
    return FirstSize(
        factor=jnp.where(is_small, 1 / jnp.where(is_small, nearest, 1), 1),
        least=SMALLEST_COORDINATE**2 * most,
        most=most,
    )


def first_seen_squares(gradient: optax.Updates, largest_squares: optax.Updates) -> optax.Updates:
    """The gradient's squares as they count where it is a coordinate's first."""
    size = first_size(gradient, largest_squares)
    return jax.tree.map(lambda g: size.of(g**2), gradient)


def _largest(tree: Any) -> jax.Array:
    tops = [jnp.max(leaf, initial=0) for leaf in jax.tree.leaves(tree)]
    return jnp.max(jnp.stack(tops)) if tops else jnp.zeros((), _precision.working_dtype(tree))
