"""The AdaGrad-style full-matrix norm of ``thm:adagrad``."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.norms import Eigenbasis, VaryingNorm


class FullMatrixRootNormState(NamedTuple):
    """Attributes:
    gradient_covariance: ``G_t``, the sum of the gradients' outer products.
    root_eigenvalues: eigenvalues of ``L (L^2 I + G_t)^{1/2}``.
    root_eigenvectors: its eigenvectors, in columns.
    """

    gradient_covariance: jax.Array
    root_eigenvalues: jax.Array
    root_eigenvectors: jax.Array


def full_matrix_root_norm(lipschitz=1.0) -> VaryingNorm:
    r"""``thm:adagrad``: :math:`\|x\|_t^2 = L\, x^\top (L^2 I + G_t)^{1/2} x`.

    :math:`G_t = \sum_{i\le t} g_i g_i^\top`. One symmetric eigendecomposition a round serves both
    duality maps.
    """
    _arguments.require_positive("lipschitz", lipschitz, "the largest l_2 norm of a gradient")

    def diagonalize(covariance):
        values, vectors = jnp.linalg.eigh(covariance)
        # G is positive semi-definite; rounding in eigh may say otherwise by a little.
        length = jnp.asarray(lipschitz, covariance.dtype)
        root = length * jnp.sqrt(length**2 + jnp.maximum(values, 0))
        return FullMatrixRootNormState(covariance, root, vectors)

    def init(params):
        flat, _ = ravel_pytree(params)
        dtype = _precision.working_dtype(params)
        return FullMatrixRootNormState(
            gradient_covariance=jnp.zeros((flat.size, flat.size), dtype),
            root_eigenvalues=jnp.full((flat.size,), lipschitz**2, dtype),
            root_eigenvectors=jnp.eye(flat.size, dtype=dtype),
        )

    def observe_gradient(state, gradient):
        flat, _ = ravel_pytree(gradient)
        if not flat.size:
            return state
        return diagonalize(state.gradient_covariance + jnp.outer(flat, flat))

    def to_dual(state, point):
        flat, unravel = ravel_pytree(point)
        return unravel(_in_basis(state, flat, state.root_eigenvalues))

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(_in_basis(state, flat, 1 / state.root_eigenvalues))

    def eigenbasis(state):
        return Eigenbasis(state.root_eigenvalues, state.root_eigenvectors)

    return VaryingNorm(init, observe_gradient, to_dual, to_primal, eigenbasis=eigenbasis)


def _in_basis(state, flat, factors):
    return state.root_eigenvectors @ (factors * (flat @ state.root_eigenvectors))
