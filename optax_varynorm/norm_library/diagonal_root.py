"""The diagonal of the root norm of ``thm:adagrad``: one weight a coordinate, O(d)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm.norms import Eigenbasis, VaryingNorm


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

    def observe_gradient(state, gradient):
        squares = jax.tree.map(lambda squares, g: squares + g**2, state.squares, gradient)
        if lipschitz is not None:
            return DiagonalRootState(state.start, squares)
        longest = jnp.maximum(state.start, _precision.inner(gradient, gradient))
        return DiagonalRootState(longest, squares)

    def to_dual(state, point):
        return jax.tree.map(jnp.multiply, weights(state), point)

    def to_primal(state, gradient):
        return jax.tree.map(jnp.divide, gradient, weights(state))

    def eigenbasis(state):
        return Eigenbasis(ravel_pytree(weights(state))[0], None)

    def known_part(state, gradient):
        return jax.tree.map(lambda g: jnp.where(state.start > 0, g, 0), gradient)

    return VaryingNorm(
        init,
        observe_gradient,
        to_dual,
        to_primal,
        eigenbasis=eigenbasis,
        known_part=known_part if lipschitz is None else None,
    )
