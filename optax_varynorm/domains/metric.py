"""What the solvers ask of a norm, in flat vectors."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optax_varynorm.domains.constraint import Constraint
from optax_varynorm.norms import InverseMatrix, NormState, VaryingNorm


class Metric(NamedTuple):
    """A norm at one round, in flat vectors.

    Attributes:
      to_primal: the duality map :math:`A^{-1} g`.
      inverse: of a quadratic norm, without arguments: :math:`A^{-1}` as a number or a diagonal if
        ``is_diagonal``, else as an ``InverseMatrix``; ``None`` for other norms.
      is_diagonal: whether the axes of the norm are the coordinate axes.
    """

    to_primal: Callable[[jax.Array], jax.Array]
    inverse: Callable[[], jax.Array | InverseMatrix] | None
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
        matrix = (columns + columns.T) / 2

        def block(indices):
            return matrix if indices is None else matrix[indices][:, indices]

        return InverseMatrix(jnp.diagonal(matrix), block)

    known = norm.inverse_matrix
    return Metric(to_primal, dense if known is None else lambda: known(norm_state), False)


class Stiffness(NamedTuple):
    r"""The matrix :math:`B = K A^{-1} K^\top` of a constraint in a quadratic norm.

    Attributes:
      times: its product with a vector.
      diagonal: its diagonal.
      block: ``indices -> matrix``, its rows and columns at these, all of them if ``None``.
    """

    times: Callable[[jax.Array], jax.Array]
    diagonal: jax.Array
    block: Callable[[jax.Array | None], jax.Array]


def stiffness(metric: Metric, constraint: Constraint, size: int) -> Stiffness:
    assert metric.inverse is not None
    k, times = constraint.rows, metric.to_primal
    if k is None and metric.is_diagonal:
        diagonal = jnp.broadcast_to(metric.inverse(), (size,))
        return Stiffness(times, diagonal, lambda indices: jnp.diag(_at(diagonal, indices)))
    if k is None:
        inverse = metric.inverse()
        return Stiffness(times, inverse.diagonal, inverse.block)
    if metric.is_diagonal:
        product = (k * jnp.broadcast_to(metric.inverse(), (size,))[None, :]) @ k.T
    else:
        product = k @ metric.inverse().block(None) @ k.T
    matrix = (product + product.T) / 2
    return Stiffness(
        lambda vector: matrix @ vector,
        jnp.diagonal(matrix),
        lambda indices: matrix if indices is None else matrix[indices][:, indices],
    )


def _at(array, indices):
    return array if indices is None else array[indices]


def local_stiffness(to_primal, constraint: Constraint, multipliers: jax.Array) -> jax.Array:
    r""":math:`K\, \nabla^2\tfrac12\|g\|_\star^2\, K^\top` at :math:`g = K^\top\mu`, any norm."""
    gradient = constraint.pull_back(multipliers)
    k = jnp.eye(gradient.size, dtype=gradient.dtype) if constraint.rows is None else constraint.rows

    def product(direction):
        return jax.jvp(to_primal, (gradient,), (direction,))[1]

    return k @ jax.vmap(product)(k).T
