"""A norm in other units."""

import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.norms import InverseMatrix, VaryingNorm


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

    def measure(state, gradient):
        reading = norm.measure(state, gradient)
        return reading._replace(squared_dual_norm=scale(reading.squared_dual_norm, -2))

    def to_dual(state, point):
        return scale(norm.to_dual(state, point), 2)

    def to_primal(state, gradient):
        return scale(norm.to_primal(state, gradient), -2)

    def inverse(state):
        assert norm.inverse is not None
        found = norm.inverse(state)
        if isinstance(found, InverseMatrix):
            diagonal, block = found
            return InverseMatrix(scale(diagonal, -2), lambda indices: scale(block(indices), -2))
        return scale(found, -2)

    return norm._replace(
        measure=measure,
        to_dual=to_dual,
        to_primal=to_primal,
        inverse=None if norm.inverse is None else inverse,
    )
