"""What the solvers ask of a norm, in flat vectors."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm.domains.constraint import Constraint
from optax_varynorm.domains.in_kernels import add_up
from optax_varynorm.norms import InverseMatrix, NormState, VaryingNorm


class Metric(NamedTuple):
    """A norm at one round, in flat vectors.

    Attributes:
      to_primal: the duality map :math:`A^{-1} g`.
      inverse: of a quadratic norm, without arguments: :math:`A^{-1}` as a number or a diagonal if
        ``is_diagonal``, else as an ``InverseMatrix``; ``None`` for other norms.
      is_diagonal: whether the axes of the norm are the coordinate axes.
      state: of the norm.
      at: ``(state, point) -> Metric``, the same norm with this state.
    """

    to_primal: Callable[[jax.Array], jax.Array]
    inverse: Callable[[], Any] | None
    is_diagonal: bool
    state: NormState
    at: Callable[[NormState, optax.Params], "Metric"]

    def dense(self, size: int) -> jax.Array:
        """The inverse of a quadratic norm as a matrix."""
        assert self.inverse is not None
        if self.is_diagonal:
            return jnp.diag(jnp.broadcast_to(self.inverse(), (size,)))
        return self.inverse().block(None)


def metric_of(norm: VaryingNorm, norm_state: NormState, point: optax.Params) -> Metric:
    flat, unravel = ravel_pytree(point)
    at = functools.partial(metric_of, norm)

    def to_primal(vector):
        return ravel_pytree(norm.to_primal(norm_state, unravel(vector)))[0]

    if norm.inverse is None:
        return Metric(to_primal, None, False, norm_state, at)
    inverse = norm.inverse(norm_state)
    if isinstance(inverse, InverseMatrix):
        return Metric(to_primal, lambda: inverse, False, norm_state, at)
    return Metric(to_primal, lambda: jnp.asarray(inverse, flat.dtype), True, norm_state, at)


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

    def rounding(self, multipliers: jax.Array) -> jax.Array:
        r"""About the length of what rounding adds to :math:`B\mu`.

        :math:`B_{ij}^2 \le B_{ii} B_{jj}`, and errors of both signs add up like their squares.
        """
        squares = add_up(self.diagonal) * add_up(self.diagonal * multipliers**2)
        return jnp.finfo(multipliers.dtype).eps * jnp.sqrt(squares)

    def put_together(self) -> "Stiffness":
        """The same with the whole matrix at hand, for small ones of sets without rows."""
        matrix = self.block(None)

        def block(indices):
            if indices is None:
                return matrix
            rows = matrix.at[indices].get(mode="promise_in_bounds")
            return rows.at[:, indices].get(mode="promise_in_bounds")

        product = functools.partial(jnp.matmul, matrix, precision=jax.lax.Precision.HIGHEST)
        return self._replace(times=product, block=block)


def stiffness(metric: Metric, constraint: Constraint, size: int) -> Stiffness:
    assert metric.inverse is not None
    if constraint.rows is None and metric.is_diagonal:
        diagonal = jnp.broadcast_to(metric.inverse(), (size,))
        return Stiffness(
            metric.to_primal, diagonal, lambda indices: jnp.diag(_at(diagonal, indices))
        )
    if constraint.rows is None:
        inverse = metric.inverse()
        return Stiffness(metric.to_primal, inverse.diagonal, inverse.block)
    product = constraint.rows @ metric.dense(size) @ constraint.rows.T
    matrix = (product + product.T) / 2

    def times(vector):
        # Not by the matrix, whose own rounding no residual would show.
        return constraint.apply(metric.to_primal(constraint.pull_back(vector)))

    return Stiffness(
        times,
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
