"""The diagonal of the full-matrix norms: one weight a coordinate, O(d)."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.norms import Eigenbasis, VaryingNorm


def diagonal_norm(lipschitz=1.0, root: bool = False) -> VaryingNorm:
    r"""The diagonal of ``thm:fullmatrix``'s matrix, or of ``thm:adagrad``'s with ``root=True``.

    .. math::
       \|x\|_t^2 = \sum_j \Big(2L^2 + \sum_{i\le t} g_{i,j}^2\Big) x_j^2
       \quad\text{or}\quad
       \|x\|_t^2 = L \sum_j \Big(L^2 + \sum_{i\le t} g_{i,j}^2\Big)^{1/2} x_j^2.

    The state is the tree of sums of squares.

    Args:
      lipschitz: the largest l_2 norm of a gradient.
      root: take the square root of the weights.
    """
    _arguments.require_moderate("lipschitz", lipschitz, "the largest l_2 norm of a gradient")

    def weight(squares):
        length = jnp.asarray(lipschitz, squares.dtype)
        if root:
            return length * jnp.sqrt(length**2 + squares)
        return 2 * length**2 + squares

    def init(params):
        return jax.tree.map(lambda x: jnp.zeros_like(x, _precision.working_dtype(params)), params)

    def observe_gradient(state, gradient):
        return jax.tree.map(lambda squares, g: squares + g**2, state, gradient)

    def to_dual(state, point):
        return jax.tree.map(lambda squares, x: weight(squares) * x, state, point)

    def to_primal(state, gradient):
        return jax.tree.map(lambda squares, g: g / weight(squares), state, gradient)

    def eigenbasis(state):
        return Eigenbasis(weight(ravel_pytree(state)[0]), None)

    return VaryingNorm(init, observe_gradient, to_dual, to_primal, eigenbasis=eigenbasis)
