"""The diagonal of the root norm of ``thm:adagrad``: one weight a coordinate, O(d)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm.norms import Reading, VaryingNorm, select


class DiagonalRootState(NamedTuple):
    """Attributes:
    start: what stands for ``L^2``; zero while no gradient was seen.
    squares: sums of the squared gradients, a tree like the parameters.
    """

    start: jax.Array
    squares: optax.Updates


def diagonal_root_norm(lipschitz) -> VaryingNorm:
    """``diagonal_norm(lipschitz, root=True)``, whose arguments are checked there."""

    def weights(state):
        # Before the first gradient any norm will do: nothing is learned in it.
        start = jnp.where(state.start > 0, state.start, 1)
        return jax.tree.map(lambda squares: jnp.sqrt(start * (start + squares)), state.squares)

    def init(params):
        dtype = _precision.working_dtype(params)
        length = jnp.asarray(0.0 if lipschitz is None else lipschitz, dtype)
        zeros = jax.tree.map(lambda x: jnp.zeros_like(x, dtype), params)
        return DiagonalRootState(length**2, zeros)

    def measure(state, gradient):
        square = _precision.inner(gradient, gradient)
        usable = _precision.is_usable(square)
        gradient = select(usable, gradient)
        known = select(state.start > 0, gradient)
        dual = jnp.maximum(_precision.inner(known, to_primal(state, known)), 0)
        return Reading(gradient, known, dual, usable, jnp.where(usable, square, 0))

    def grow(state, reading):
        squares = jax.tree.map(lambda total, g: total + g**2, state.squares, reading.gradient)
        if lipschitz is not None:
            return DiagonalRootState(state.start, squares)
        return DiagonalRootState(jnp.maximum(state.start, reading.product), squares)

    def to_dual(state, point):
        return jax.tree.map(jnp.multiply, weights(state), point)

    def to_primal(state, gradient):
        return jax.tree.map(jnp.divide, gradient, weights(state))

    def inverse(state):
        return 1 / ravel_pytree(weights(state))[0]

    return VaryingNorm(init, measure, grow, to_dual, to_primal, inverse=inverse)
