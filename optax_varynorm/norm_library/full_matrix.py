"""The full-matrix norm of ``thm:fullmatrix``."""

import math

import jax.numpy as jnp

from optax_varynorm import _arguments
from optax_varynorm.norm_library import growing_inverse
from optax_varynorm.norm_library.norm_by_inverse import (
    Growing,
    in_coordinate_units,
    in_known_units,
    in_learned_unit,
)
from optax_varynorm.norms import VaryingNorm


def full_matrix_norm(lipschitz=1.0, start: str = "isotropic") -> VaryingNorm:
    r"""``thm:fullmatrix`` with the Euclidean base norm: :math:`\|x\|_t^2 = x^\top(2L^2 I + G_t)x`.

    :math:`G_t = \sum_{i\le t} g_i g_i^\top`. The state has a ``GrowingInverse`` of the matrix, rows
    in tree order: O(d^2) a round, one read of the matrix.

    Args:
      lipschitz: ``L``, the largest l_2 norm of a gradient, or ``None`` if nobody knows it. Then
        the gradients tell where to start.
      start: with ``lipschitz=None``, what stands for :math:`2L^2 I`. ``"isotropic"``:
        :math:`2m^2 I`, where ``m`` is the length of the last gradient that outweighed all before
        it. ``"coordinate"``: a diagonal matrix with twice the square of each coordinate's first
        nonzero gradient, so that the units of a coordinate do not matter; see
        ``first_seen_squares`` for the details. It is no norm in coordinates without a gradient so
        far, and not meant for projections.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.full_matrix_norm(lipschitz=1.0)
    >>> state = norm.observe_gradient(norm.init(jnp.zeros(2)), jnp.array([1.0, 0.0]))
    >>> [round(x, 3) for x in norm.to_dual(state, jnp.ones(2)).tolist()]
    [3.0, 2.0]
    """
    if start not in ("isotropic", "coordinate"):
        raise ValueError(f"`start` must be 'isotropic' or 'coordinate', not {start!r}.")
    if lipschitz is None:
        growing = _inverse(1.0)
        if start == "coordinate":
            return in_coordinate_units(growing, factor=math.sqrt(2))
        return in_learned_unit(growing, factor=math.sqrt(2), follow_largest=False)
    _arguments.require_moderate("lipschitz", lipschitz, "the largest l_2 norm of a gradient")
    return in_known_units(_inverse(lipschitz, 2))


def _inverse(lipschitz, times=1) -> Growing:
    def start(received_sum):
        value = 1 / (times * jnp.asarray(lipschitz, received_sum.dtype) ** 2)
        return growing_inverse.scaled_identity(value, received_sum)

    return Growing(
        start,
        growing_inverse.grow,
        growing_inverse.times,
        total=lambda product: product,
        dense=growing_inverse.dense,
        block=growing_inverse.block,
        diagonal=lambda inverse: inverse.diagonal,
        leader=lambda inverse: inverse.leader,
        growth=lambda squares: 1 + squares,
    )
