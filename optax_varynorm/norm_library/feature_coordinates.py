"""Coordinates in which features have no units: by each one's first size, or by their span.

Both map a vector ``f`` of features (or a gradient, a multiple of one) to coordinates ``z = D f``
that are zero where nothing was met before, and take a new direction in as a new coordinate of
size one, which leaves the coordinates of everything met before as they are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from optax_varynorm import _precision
from optax_varynorm._in_place import rarely

# Entries are cut here, where float32 can still square them; a coordinate is then enlarged until
# they are not.
FARTHEST = 2.0**60


class FirstSizes(NamedTuple):
    """``D`` is diagonal: each coordinate is divided by its first nonzero size.

    Attributes:
      sizes: the size of each coordinate's first nonzero feature, zero before.
    """

    sizes: jax.Array

    @classmethod
    def start(cls, flat: jax.Array) -> "FirstSizes":
        return cls(jnp.zeros_like(flat))

    @property
    def known(self) -> jax.Array:
        return self.sizes > 0

    def meet(self, features: jax.Array) -> "FirstSizes":
        return FirstSizes(jnp.where(self.known, self.sizes, _precision.size(features)))

    def times(self, vector: jax.Array) -> jax.Array:
        """``D vector``."""
        return _precision.ratio(vector, self.sizes)

    def transposed_times(self, vector: jax.Array) -> jax.Array:
        return self.times(vector)

    def solve(self, vector: jax.Array) -> jax.Array:
        """``D^{-1} vector``."""
        return vector * self.sizes

    def transposed_solve(self, vector: jax.Array) -> jax.Array:
        return self.solve(vector)

    def enlarge(self, factors: jax.Array) -> "FirstSizes":
        """Divide the coordinates by these factors."""
        return FirstSizes(self.sizes * factors)


class SpanBasis(NamedTuple):
    r"""The first linearly independent features are the basis: ``D b_k = e_k``.

    So the coordinates of a feature vector in their span do not depend on how features are measured
    or mixed: for any invertible ``M``, those of ``M f`` in the basis ``M b_k`` are the same. ``D``
    is kept as the matrix of a Gauss-Jordan elimination with partial pivoting, one step for each new
    direction, O(d^2): a vector is in the span when its entries in the rows without a pivot are
    zero but for rounding.

    Attributes:
      sizes: as in ``FirstSizes``: columns are divided by them, to keep the elimination in range.
        A feature 2^60 times as large as its first size counts as that.
      matrix: ``D`` for columns of size one.
      known: which rows have a pivot.
    """

    sizes: jax.Array
    matrix: jax.Array
    known: jax.Array

    @classmethod
    def start(cls, flat: jax.Array) -> "SpanBasis":
        return cls(
            jnp.zeros_like(flat),
            jnp.eye(flat.size, dtype=flat.dtype),
            jnp.zeros(flat.shape, bool),
        )

    def meet(self, features: jax.Array) -> "SpanBasis":
        sizes = jnp.where(self.sizes > 0, self.sizes, _precision.size(features))
        incomplete = ~jnp.all(self.known)
        return rarely(incomplete, _pivot_if_new, self._replace(sizes=sizes), features)

    def times(self, vector: jax.Array) -> jax.Array:
        """``D vector``."""
        product = _product(self.matrix, self.divide(vector))
        return jnp.where(self.known, product, 0)

    def divide(self, vector: jax.Array) -> jax.Array:
        """By the sizes of the columns."""
        return jnp.clip(_precision.ratio(vector, self.sizes), -FARTHEST, FARTHEST)

    def transposed_times(self, vector: jax.Array) -> jax.Array:
        product = _product(jnp.where(self.known, vector, 0), self.matrix)
        return _precision.ratio(product, self.sizes)

    def solve(self, vector: jax.Array) -> jax.Array:
        """``D^{-1} vector``."""
        return self.sizes * jnp.linalg.solve(self.matrix, jnp.where(self.known, vector, 0))

    def transposed_solve(self, vector: jax.Array) -> jax.Array:
        solved = jnp.linalg.solve(self.matrix.T, self.sizes * vector)
        return jnp.where(self.known, solved, 0)

    def enlarge(self, factors: jax.Array) -> "SpanBasis":
        """Divide the coordinates by these factors."""
        return self._replace(matrix=self.matrix / factors[:, None])


def _product(left, right):
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _pivot_if_new(basis, features):
    vector = basis.divide(features)
    entries = _product(basis.matrix, vector)
    # What rounding may have made of a zero, with room for what the elimination's steps added.
    noise = jnp.finfo(vector.dtype).eps ** (2 / 3) * _product(
        jnp.abs(basis.matrix), jnp.abs(vector)
    )
    outside = jnp.where(basis.known | (jnp.abs(entries) <= noise), 0, jnp.abs(entries))
    pivot = jnp.argmax(outside)
    at_pivot = jnp.arange(entries.size) == pivot
    row = _precision.ratio(basis.matrix[pivot], entries[pivot])
    eliminated = jnp.where(at_pivot[:, None], row, basis.matrix - jnp.outer(entries, row))
    is_new = outside[pivot] > 0
    return SpanBasis(
        basis.sizes,
        jnp.where(is_new, eliminated, basis.matrix),
        basis.known | (at_pivot & is_new),
    )
