"""Indexing, sums and products in the words that XLA compiles best in a kernel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

# Rows of a product that are written out.
ROWS_AT_ONCE = 8
# Up to here it pays to add halves.
LONGEST_BY_HALVES = 64


def at(array: jax.Array, i) -> jax.Array:
    """An entry or row; the index is not checked."""
    return jax.lax.dynamic_index_in_dim(array, i, keepdims=False, allow_negative_indices=False)


def put(array: jax.Array, i, value) -> jax.Array:
    """The array with another entry or row; the index is not checked."""
    return jax.lax.dynamic_update_index_in_dim(array, value, i, 0, allow_negative_indices=False)


def combine(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """The sum of the rows with these weights, written out as four sums side by side.

    XLA computes it again for everything that reads it.
    """
    terms = [rows[i] * weights[i] for i in range(weights.size)]
    parts = [functools.reduce(jnp.add, terms[i::4]) for i in range(min(4, len(terms)))]
    return functools.reduce(jnp.add, parts)


def combine_once(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """The same for sums that are read often: XLA copies no loop to where its result is read."""
    blocks, rest = divmod(weights.size, ROWS_AT_ONCE)
    if not blocks:
        return combine(rows, weights)
    first = combine(rows[:rest], weights[:rest]) if rest else jnp.zeros_like(rows[0])

    def add_block(k, total):
        here = functools.partial(
            jax.lax.dynamic_slice_in_dim,
            start_index=rest + k * ROWS_AT_ONCE,
            slice_size=ROWS_AT_ONCE,
            allow_negative_indices=False,
        )
        return total + combine(here(rows), here(weights))

    return jax.lax.fori_loop(0, blocks, add_block, first)


def add_up(numbers: jax.Array) -> jax.Array:
    """Their sum along the last axis, of few by halves: in a kernel it is taken one by one."""
    return _by_halves(jnp.add, jnp.sum, numbers)


def mean(numbers: jax.Array) -> jax.Array:
    return add_up(numbers) / numbers.size


def largest(numbers: jax.Array) -> jax.Array:
    """The same for their maximum."""
    return _by_halves(jnp.maximum, jnp.max, numbers)


def _by_halves(of_two, of_all, numbers):
    if numbers.shape[-1] <= LONGEST_BY_HALVES:
        while numbers.shape[-1] > 8 and numbers.shape[-1] % 2 == 0:
            numbers = of_two(*jnp.split(numbers, 2, axis=-1))
    return of_all(numbers, axis=-1)


def length(vector: jax.Array) -> jax.Array:
    """``constraint.length`` by two sums: a maximum and divisions take three times as long."""
    # XLA may multiply a factor that it knows with itself first: its square must be finite.
    large = np.asarray(2.0 ** (jnp.finfo(vector.dtype).maxexp // 2 - 2), vector.dtype)
    one, small = np.ones_like(large), 1 / large
    square = add_up(vector**2)
    # By a power of two nothing is rounded.
    factor = jnp.where(square < small, large, jnp.where(square < large, one, small))
    square = add_up((factor * vector) ** 2)
    is_zero = square == 0
    return jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, square)) / factor)


def in_vectors(numbers: jax.Array) -> jax.Array:
    """The same numbers, infinite ones made finite, computed in vectors.

    Short loops of few operations LLVM writes out before it would make vectors of them; with these
    two more it does not.
    """
    limit = jnp.finfo(numbers.dtype).max
    return jnp.clip(numbers, -limit, limit)
