"""The full-matrix norm of ``thm:fullmatrix``."""

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.norm_library import growing_inverse
from optax_varynorm.norms import VaryingNorm


def full_matrix_norm(lipschitz=1.0) -> VaryingNorm:
    r"""``thm:fullmatrix`` with the Euclidean base norm: :math:`\|x\|_t^2 = x^\top(2L^2 I + G_t)x`.

    :math:`G_t = \sum_{i\le t} g_i g_i^\top`. The state is a ``GrowingInverse`` of the matrix, rows
    in tree order: O(d^2) a round, one read of the matrix. ``to_dual`` and ``eigenbasis`` cost
    O(d^3); neither an unconstrained learner nor a half-space needs them.
    """
    _arguments.require_moderate("lipschitz", lipschitz, "the largest l_2 norm of a gradient")

    def init(params):
        flat, _ = ravel_pytree(params)
        dtype = _precision.working_dtype(params)
        start = 1 / (2 * jnp.asarray(lipschitz, dtype) ** 2)
        return growing_inverse.scaled_identity(start, flat.size)

    def observe_gradient(state, gradient, share=1.0):
        flat, _ = ravel_pytree(gradient)
        return growing_inverse.grow(state, flat, jnp.asarray(share, flat.dtype))

    def to_dual(state, point):
        flat, unravel = ravel_pytree(point)
        return unravel(jnp.linalg.solve(growing_inverse.dense(state), flat) if flat.size else flat)

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(growing_inverse.times(state, flat))

    def eigenbasis(state):
        return growing_inverse.eigenbasis_of_inverse(growing_inverse.dense(state))

    return VaryingNorm(
        init,
        observe_gradient,
        to_dual,
        to_primal,
        eigenbasis=eigenbasis,
        leader=lambda state: state.leader,
    )
