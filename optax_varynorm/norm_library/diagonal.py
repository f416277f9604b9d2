"""The diagonal of the full-matrix norms: one weight a coordinate, O(d)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.norm_library.first_seen import first_seen_squares
from optax_varynorm.norms import Eigenbasis, VaryingNorm


class DiagonalState(NamedTuple):
    """Attributes:
    start: what stands for ``L^2`` in the weights: one number, or a tree like the parameters. Zero
      where no gradient was seen.
    squares: sums of the squared gradients, a tree like the parameters.
    """

    start: Any
    squares: optax.Updates


def diagonal_norm(lipschitz=1.0, root: bool = False, start: str = "isotropic") -> VaryingNorm:
    r"""The diagonal of ``thm:fullmatrix``'s matrix, or of ``thm:adagrad``'s with ``root=True``.

    .. math::
       \|x\|_t^2 = \sum_j \Big(2L^2 + \sum_{i\le t} g_{i,j}^2\Big) x_j^2
       \quad\text{or}\quad
       \|x\|_t^2 = L \sum_j \Big(L^2 + \sum_{i\le t} g_{i,j}^2\Big)^{1/2} x_j^2.

    Args:
      lipschitz: ``L``, the largest l_2 norm of a gradient, or ``None`` if nobody knows it.
      root: take the square root of the weights.
      start: with ``lipschitz=None``, what stands for ``L`` in :math:`2L^2`. ``"isotropic"``: the
        length of the longest gradient so far. ``"coordinate"``: each coordinate's largest gradient
        so far, so that the units of a coordinate do not matter (not for ``root``); see
        ``first_seen_squares`` for the details. It is no norm in coordinates without a gradient so
        far, and not meant for projections.
    """
    if start not in ("isotropic", "coordinate") or (root and start == "coordinate"):
        raise ValueError(
            f"`start` must be 'isotropic' or, without `root`, 'coordinate', not {start!r}."
        )
    by_coordinate = lipschitz is None and start == "coordinate"
    if lipschitz is not None:
        _arguments.require_moderate("lipschitz", lipschitz, "the largest l_2 norm of a gradient")

    def weight(start, squares):
        if root:
            return jnp.sqrt(start * (start + squares))
        return 2 * start + squares

    def weights(state):
        if by_coordinate:
            return jax.tree.map(weight, state.start, state.squares)
        # Before the first gradient any norm will do: nothing is learned in it.
        start = jnp.where(state.start > 0, state.start, 1)
        return jax.tree.map(lambda squares: weight(start, squares), state.squares)

    def init(params):
        dtype = _precision.working_dtype(params)

        def zeros():
            return jax.tree.map(lambda x: jnp.zeros_like(x, dtype), params)

        length = jnp.asarray(0.0 if lipschitz is None else lipschitz, dtype)
        return DiagonalState(zeros() if by_coordinate else length**2, zeros())

    def observe_gradient(state, gradient):
        squares = jax.tree.map(lambda squares, g: squares + g**2, state.squares, gradient)
        if by_coordinate:
            first = jax.tree.map(
                lambda start, seen, g: jnp.where(start > 0, jnp.maximum(start, g**2), seen),
                state.start,
                first_seen_squares(gradient, state.start),
                gradient,
            )
        elif lipschitz is None:
            first = jnp.maximum(state.start, _precision.inner(gradient, gradient))
        else:
            first = state.start
        return DiagonalState(first, squares)

    def to_dual(state, point):
        return jax.tree.map(jnp.multiply, weights(state), point)

    def to_primal(state, gradient):
        return jax.tree.map(_precision.ratio, gradient, weights(state))

    def eigenbasis(state):
        return Eigenbasis(ravel_pytree(weights(state))[0], None)

    def known_part(state, gradient):
        if by_coordinate:
            return jax.tree.map(lambda start, g: jnp.where(start > 0, g, 0), state.start, gradient)
        return jax.tree.map(lambda g: jnp.where(state.start > 0, g, 0), gradient)

    return VaryingNorm(
        init,
        observe_gradient,
        to_dual,
        to_primal,
        eigenbasis=eigenbasis,
        known_part=known_part if lipschitz is None else None,
    )
