"""The full-matrix norm of ``thm:fullmatrix``."""

import jax.numpy as jnp

from optax_varynorm import _arguments
from optax_varynorm.norm_library import growing_inverse
from optax_varynorm.norm_library.norm_by_inverse import norm_by_inverse
from optax_varynorm.norms import VaryingNorm


def full_matrix_norm(lipschitz=1.0) -> VaryingNorm:
    r"""``thm:fullmatrix`` with the Euclidean base norm: :math:`\|x\|_t^2 = x^\top(2L^2 I + G_t)x`.

    :math:`G_t = \sum_{i\le t} g_i g_i^\top`. The state is a ``GrowingInverse`` of the matrix, rows
    in tree order: O(d^2) a round, one read of the matrix.
    """
    _arguments.require_moderate("lipschitz", lipschitz, "the largest l_2 norm of a gradient")

    def init(dimension, dtype):
        start = 1 / (2 * jnp.asarray(lipschitz, dtype) ** 2)
        return growing_inverse.scaled_identity(start, dimension)

    return norm_by_inverse(
        init,
        growing_inverse.grow,
        growing_inverse.times,
        growing_inverse.dense,
        leader=lambda state: state.leader,
    )
