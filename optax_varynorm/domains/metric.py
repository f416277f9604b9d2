"""What the solvers ask of a norm, in flat vectors."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optax_varynorm.domains.constraint import Constraint
from optax_varynorm.norms import NormState, VaryingNorm


class Metric(NamedTuple):
    """A norm at one round, in flat vectors.

    Attributes:
      to_primal: the duality map :math:`A^{-1} g`.
      inverse: of a quadratic norm, without arguments: :math:`A^{-1}` as a number, a diagonal or a
        matrix; ``None`` for other norms.
      is_diagonal: whether that is a number or a diagonal.
    """

    to_primal: Callable[[jax.Array], jax.Array]
    inverse: Callable[[], jax.Array] | None
    is_diagonal: bool


def metric_of(norm: VaryingNorm, norm_state: NormState, flat: jax.Array, unravel) -> Metric:
    def to_primal(vector):
        return jax.flatten_util.ravel_pytree(norm.to_primal(norm_state, unravel(vector)))[0]

    if norm.eigenbasis is None:
        return Metric(to_primal, None, False)
    basis = jax.eval_shape(norm.eigenbasis, norm_state)
    if basis.vectors is None:
        eigenbasis = norm.eigenbasis

        def diagonal():
            return 1 / jnp.asarray(eigenbasis(norm_state).values, flat.dtype)

        return Metric(to_primal, diagonal, True)

    def dense():
        columns = jax.vmap(to_primal)(jnp.eye(flat.size, dtype=flat.dtype))
        return (columns + columns.T) / 2

    return Metric(to_primal, dense, False)


def stiffness(inverse: jax.Array, constraint: Constraint, size: int) -> jax.Array:
    r""":math:`B = K A^{-1} K^\top`, as a matrix."""
    k = constraint.rows
    if inverse.ndim < 2:
        diagonal = jnp.broadcast_to(inverse, (size,))
        return jnp.diag(diagonal) if k is None else (k * diagonal[None, :]) @ k.T
    if k is None:
        return inverse
    product = k @ inverse @ k.T
    return (product + product.T) / 2


def local_stiffness(to_primal, constraint: Constraint, multipliers: jax.Array) -> jax.Array:
    r""":math:`K\, \nabla^2\tfrac12\|g\|_\star^2\, K^\top` at :math:`g = K^\top\mu`, any norm."""
    gradient = constraint.pull_back(multipliers)
    k = jnp.eye(gradient.size, dtype=gradient.dtype) if constraint.rows is None else constraint.rows

    def product(direction):
        return jax.jvp(to_primal, (gradient,), (direction,))[1]

    return k @ jax.vmap(product)(k).T
