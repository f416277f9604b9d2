r"""The inverse of a matrix that grows by one rank-one term a round, at one read of it a round.

With :math:`A \leftarrow A + g g^\top` and :math:`P = A^{-1}`, Sherman and Morrison's formula is

.. math:: u = P g, \qquad r = \frac{1}{1 + \langle g, u\rangle}, \qquad P \leftarrow P - r u u^\top.

Three things make it fast and lasting:

* **Delay.** The terms :math:`\sqrt r u` wait in a buffer of ``K`` rows ``U``, so
  :math:`P g = M g - U^\top (U g)`, and one matrix product every ``K`` rounds moves them into ``M``.
  A round then reads the matrix once and writes it ``1/K`` times.
* **Compensation.** What ``M - U^T U`` loses to rounding is kept beside ``M`` and added back at the
  next flush. Rounding errors of a repeated update would otherwise add up until float32 knows
  nothing of the directions in which ``A`` is large.
* **A leader.** :math:`p = P\theta` follows a sum :math:`\theta` of the gradients without reading
  the matrix: when :math:`\theta \leftarrow \theta + c g`, it becomes
  :math:`p + r u (c - \langle g, p\rangle)`.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from optax_varynorm import _precision
from optax_varynorm._in_place import after, rarely_for_all
from optax_varynorm.kernels import one_kernel

# At most this many terms wait: enough to make the flush a matrix product, few enough for the two
# products with the buffer to stay cheap beside the one with the matrix.
MOST_PENDING_TERMS = 64

# Up to this dimension a flush subtracts the terms one by one in one loop over the matrix. XLA's CPU
# backend takes several times as long for a batch of small products, which `vmap` makes of them.
LARGEST_UNROLLED = 128

# Waiting terms that are subtracted in one loop over a small matrix, where few of them are used.
TERMS_AT_ONCE = 4

# A coordinate starts afresh when the square of a vector's entry exceeds its weight in the matrix by
# this factor. Large enough to be rare, small enough for float32 to resolve what lies between.
OUTGROWN = 2.0**10
# x'Ax <= (1 + t) x'A'x + (1 + 1/t) A_ii x_i^2, where A' is A without its row and column i: units
# that grow by this factor make up for what a restart takes away.
INFLATION = math.sqrt(1 + 1 / (2 * OUTGROWN - 1))

# Accelerators would round the factors to bfloat16.
_product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


class GrowingInverse(NamedTuple):
    """Attributes:
    matrix: the inverse, without the terms that wait.
    rounding: what the last flush could not add to ``matrix``, being too small.
    pending_terms: rows ``sqrt(r) u`` to subtract the outer products of; zero where unused.
    pending_count: how many of them are in use. It grows by one a round, whatever happens: runs side
      by side (``vmap``) then flush in the same rounds, and a flush of one costs all of them.
    diagonal: the diagonal of the inverse, waiting terms included.
    leader: the inverse times the weighted sum of the vectors so far.
    """

    matrix: jax.Array
    rounding: jax.Array
    pending_terms: jax.Array
    pending_count: jax.Array
    diagonal: jax.Array
    leader: jax.Array


def pending_capacity(dimension: int) -> int:
    """How many terms wait: a sixth of the matrix's rows, but up to 16 while that is little memory.

    Small matrices are batched by ``vmap``, where rare flushes matter more than a small buffer.
    """
    return min(MOST_PENDING_TERMS, max(dimension // 6, min(16, dimension // 2 - 2), 1))


def scaled_identity(value: jax.Array, weighted_sum: jax.Array) -> GrowingInverse:
    """The inverse of ``I / value``, with the leader of this sum."""
    (dimension,) = weighted_sum.shape
    capacity = pending_capacity(dimension)
    return GrowingInverse(
        matrix=value * jnp.eye(dimension, dtype=value.dtype),
        rounding=jnp.zeros((dimension, dimension), value.dtype),
        pending_terms=jnp.zeros((capacity, dimension), value.dtype),
        pending_count=jnp.zeros((), jnp.int32),
        diagonal=jnp.full((dimension,), value, value.dtype),
        leader=value * weighted_sum,
    )


def times(inverse: GrowingInverse, vector: jax.Array) -> jax.Array:
    """The inverse times a vector: one read of the matrix."""
    waiting = _product(_product(inverse.pending_terms, vector), inverse.pending_terms)
    return _product(inverse.matrix, vector) - waiting


def block(inverse: GrowingInverse, indices: jax.Array | None) -> jax.Array:
    """Rows and columns of the inverse that ``times`` multiplies with, all of them if ``None``."""
    matrix, terms = inverse.matrix, inverse.pending_terms
    if indices is None:
        return _subtract_used_terms(matrix, terms, inverse.pending_count)
    chosen = terms[:, indices]
    return matrix[indices][:, indices] - _product(chosen.T, chosen)


def dense(inverse: GrowingInverse) -> jax.Array:
    """The inverse as one matrix, for rare work such as an eigendecomposition."""
    waiting = _product(inverse.pending_terms.T, inverse.pending_terms)
    return inverse.matrix + (inverse.rounding - waiting)


def restart_coordinate(
    inverse: GrowingInverse, index: jax.Array, leader_entry: jax.Array, factor: float
) -> GrowingInverse:
    r"""The inverse of a matrix whose row and column ``index`` become those of the identity.

    Without the coordinate, the inverse is the Schur complement
    :math:`Q_{jk} - Q_{ji} Q_{ik} / Q_{ii}`, and a leader :math:`p = Q\theta` becomes
    :math:`p_j - Q_{ji} p_i / Q_{ii}`. O(d^2).

    Args:
      inverse: the inverse before.
      index: ``i``.
      leader_entry: the leader at the coordinate afterwards.
      factor: the change of the sum that the leader follows, elsewhere.
    """
    matrix = dense(inverse)
    pivot = jnp.maximum(inverse.diagonal[index], jnp.finfo(matrix.dtype).tiny)
    # Q_ji^2 <= Q_jj Q_ii (Cauchy-Schwarz), by force where rounding says otherwise.
    limit = jnp.sqrt(inverse.diagonal)
    column = jnp.clip(matrix[:, index] * jax.lax.rsqrt(pivot), -limit, limit)
    at_index = jnp.arange(len(column)) == index
    cross = at_index[:, None] | at_index[None, :]
    rest = jnp.where(cross, 0, matrix - jnp.outer(column, column))
    alone = rest + jnp.diag(at_index.astype(matrix.dtype))
    leader = factor * (inverse.leader - column * (inverse.leader[index] * jax.lax.rsqrt(pivot)))
    return GrowingInverse(
        matrix=alone,
        rounding=jnp.zeros_like(inverse.rounding),
        pending_terms=jnp.zeros_like(inverse.pending_terms),
        pending_count=inverse.pending_count,
        diagonal=jnp.where(
            at_index, 1, jnp.maximum(jnp.diagonal(alone), inverse.diagonal - column**2)
        ),
        leader=jnp.where(at_index, leader_entry, leader),
    )


def grow(
    inverse: GrowingInverse,
    vector: jax.Array,
    primal: jax.Array,
    share: Any = 0.0,
    fresh: jax.Array | None = None,
) -> GrowingInverse:
    r"""The inverse after the matrix grew by the outer product of ``vector`` with itself.

    Args:
      inverse: the inverse before.
      vector: ``g``.
      primal: ``u``, that is ``times(inverse, vector)``: who has measured the gradient knows it.
      share: ``c``, how much of the vector enters the sum that the leader follows.
      fresh: ``b``, the part of the vector in coordinates that no vector touched before, which does
        not enter that sum. There the inverse is still the identity, so the sum's new part
        contributes :math:`c (P' g - P' b) = c\,(r (1 + \langle b, b\rangle) u - b)`.
    """
    # For a positive definite P, u_i^2 <= P_ii <g, P g> (Cauchy-Schwarz), so the new diagonal
    # P_ii - r u_i^2 is at least r P_ii. Where rounding has eaten P in the direction of g, both hold
    # by force: the terms of a coordinate can then never add up to more than its diagonal started
    # with, and the inverse stays bounded.
    squared_dual_norm = jnp.maximum(_precision.dot(vector, primal), 0)
    limit = jnp.sqrt(inverse.diagonal) * _precision.root(squared_dual_norm)
    primal = jnp.clip(primal, -limit, limit)
    shrink = 1 / (1 + squared_dual_norm)

    pull = share - _precision.dot(vector, inverse.leader)
    leader = inverse.leader
    if fresh is not None:
        pull = pull + share * _precision.dot(fresh, fresh)
        leader = leader - share * fresh

    term = jnp.sqrt(shrink) * primal
    waiting = GrowingInverse(
        matrix=inverse.matrix,
        rounding=inverse.rounding,
        pending_terms=jax.lax.dynamic_update_index_in_dim(
            inverse.pending_terms, term, inverse.pending_count, 0
        ),
        pending_count=inverse.pending_count + 1,
        diagonal=jnp.maximum(inverse.diagonal - term**2, shrink * inverse.diagonal),
        leader=leader + shrink * pull * primal,
    )
    return rarely_for_all(_is_full, _flush, waiting)


def _is_full(inverse: GrowingInverse) -> jax.Array:
    return inverse.pending_count == inverse.pending_terms.shape[0]


def _subtract_terms(matrix: jax.Array, terms: jax.Array) -> jax.Array:
    """``matrix - terms.T @ terms``."""
    if terms.shape[1] > LARGEST_UNROLLED:
        return matrix - _product(terms.T, terms)
    for term in terms:
        matrix = matrix - term[:, None] * term[None, :]
    return matrix


def _subtract_used_terms(matrix: jax.Array, terms: jax.Array, used: jax.Array) -> jax.Array:
    """The same, where only the first few rows of the terms are not zero."""
    if terms.shape[1] > LARGEST_UNROLLED or terms.shape[0] <= TERMS_AT_ONCE:
        return _subtract_terms(matrix, terms)
    rest = terms.shape[0] % TERMS_AT_ONCE

    @one_kernel
    def subtract(matrix, terms, used):
        def subtract_some(k, matrix):
            start = rest + k * TERMS_AT_ONCE
            some = jax.lax.dynamic_slice_in_dim(terms, start, TERMS_AT_ONCE)
            return _subtract_terms(matrix, some)

        times = (used - rest + TERMS_AT_ONCE - 1) // TERMS_AT_ONCE
        return jax.lax.fori_loop(0, times, subtract_some, _subtract_terms(matrix, terms[:rest]))

    return subtract(matrix, terms, used)


def _flush(inverse: GrowingInverse) -> GrowingInverse:
    change = _subtract_terms(inverse.rounding, inverse.pending_terms)
    rounding = change - ((inverse.matrix + change) - inverse.matrix)
    # What is new is written over what it was computed from.
    never = jnp.any(jnp.isnan(rounding[:1, :1]))
    matrix = inverse.matrix + after(never, change)
    return GrowingInverse(
        matrix=matrix,
        rounding=rounding,
        pending_terms=jnp.where(never, inverse.pending_terms, 0),
        pending_count=jnp.zeros_like(inverse.pending_count),
        # The matrix knows its diagonal best, unless rounding has eaten it.
        diagonal=jnp.maximum(jnp.diagonal(matrix), inverse.diagonal / 2),
        leader=inverse.leader,
    )
