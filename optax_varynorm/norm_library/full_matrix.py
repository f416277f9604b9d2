"""The full-matrix norm of ``thm:fullmatrix``."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.norms import Eigenbasis, VaryingNorm


class FullMatrixNormState(NamedTuple):
    """Attributes: ``inverse_matrix``, the inverse of ``2 L^2 I + G_t``, rows in tree order."""

    inverse_matrix: jax.Array


def full_matrix_norm(lipschitz=1.0) -> VaryingNorm:
    r"""``thm:fullmatrix`` with the Euclidean base norm: :math:`\|x\|_t^2 = x^\top(2L^2 I + G_t)x`.

    :math:`G_t = \sum_{i\le t} g_i g_i^\top`. Only the inverse :math:`P` is kept. A new gradient
    changes it by one rank-one term (Sherman and Morrison), in O(d^2):

    .. math:: u = P g, \qquad P \leftarrow P - \frac{u u^\top}{1 + \langle g, u\rangle}.
    """
    _arguments.require_positive("lipschitz", lipschitz, "the largest l_2 norm of a gradient")

    def init(params):
        flat, _ = ravel_pytree(params)
        dtype = _precision.working_dtype(params)
        smallest = jnp.asarray(1 / (2 * lipschitz**2), dtype)
        return FullMatrixNormState(smallest * jnp.eye(flat.size, dtype=dtype))

    def observe_gradient(state, gradient):
        flat, _ = ravel_pytree(gradient)
        primal = state.inverse_matrix @ flat
        # For a positive definite P, u_i^2 <= P_ii <g, P g> (Cauchy-Schwarz), so the maximum below
        # is <g, P g>. Where rounding has eaten P in the direction of g, it keeps the diagonal of
        # the inverse positive and thereby all of it bounded.
        diagonal = jnp.diagonal(state.inverse_matrix)
        least = jnp.max(jnp.where(primal == 0, 0, primal**2 / diagonal), initial=0)
        squared_dual_norm = jnp.maximum(jnp.vdot(flat, primal), least)
        shrunk = primal / jnp.sqrt(1 + squared_dual_norm)
        return FullMatrixNormState(state.inverse_matrix - jnp.outer(shrunk, shrunk))

    def to_dual(state, point):
        flat, unravel = ravel_pytree(point)
        return unravel(jnp.linalg.solve(state.inverse_matrix, flat) if flat.size else flat)

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(state.inverse_matrix @ flat)

    def eigenbasis(state):
        values, vectors = jnp.linalg.eigh(state.inverse_matrix)
        return Eigenbasis(1 / jnp.maximum(values, jnp.finfo(values.dtype).tiny), vectors)

    return VaryingNorm(init, observe_gradient, to_dual, to_primal, eigenbasis=eigenbasis)
