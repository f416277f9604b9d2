"""A norm in other units."""

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.norms import Eigenbasis, InverseMatrix, VaryingNorm


def scaled_norm(norm: VaryingNorm, factor) -> VaryingNorm:
    r"""The norms :math:`c\,\|x\|_t`: dual norms are divided by ``c``.

    Half the square remains as strongly convex as it was, since both sides of the inequality grow by
    :math:`c^2`. A factor above one makes room for gradients that are longer than the norm expects.

    Args:
      norm: any norms.
      factor: ``c``, a positive number.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.scaled_norm(vn.lp_norm(2.0), 2.0)
    >>> state = norm.init(jnp.zeros(2))
    >>> float(vn.primal_norm(norm, state, jnp.array([3.0, 4.0])))
    10.0
    """
    _arguments.require_moderate("factor", factor, "what a norm is multiplied by")

    def scale(tree, power):
        dtype = _precision.working_dtype(tree)
        return optax.tree.scale(jnp.asarray(factor, dtype) ** power, tree)

    def to_dual(state, point):
        return scale(norm.to_dual(state, point), 2)

    def to_primal(state, gradient):
        return scale(norm.to_primal(state, gradient), -2)

    scaled = norm._replace(to_dual=to_dual, to_primal=to_primal)
    if norm.inverse_weights is not None:
        inverse_weights_of = norm.inverse_weights

        def inverse_weights(state, dtype):
            return scale(inverse_weights_of(state, dtype), -2)

        scaled = scaled._replace(inverse_weights=inverse_weights)
    if norm.eigenbasis is not None:
        basis_of = norm.eigenbasis

        def eigenbasis(state) -> Eigenbasis:
            basis = basis_of(state)
            return basis._replace(values=scale(basis.values, 2))

        scaled = scaled._replace(eigenbasis=eigenbasis)
    if norm.inverse_matrix is not None:
        inverse_of = norm.inverse_matrix

        def inverse_matrix(state) -> InverseMatrix:
            diagonal, block = inverse_of(state)
            return InverseMatrix(scale(diagonal, -2), lambda indices: scale(block(indices), -2))

        scaled = scaled._replace(inverse_matrix=inverse_matrix)
    if norm.leader is not None:
        leader_of = norm.leader

        def leader(state) -> jax.Array:
            return scale(leader_of(state), -2)

        scaled = scaled._replace(leader=leader)
    return scaled
