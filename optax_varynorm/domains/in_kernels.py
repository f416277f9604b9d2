"""Indexing, sums and products in the words that XLA compiles best in a kernel."""

import functools

import jax
import jax.numpy as jnp

# Rows of a product that are written out.
ROWS_AT_ONCE = 8


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
    """Their sum. In a kernel it would be taken one by one, but halves are added side by side."""
    while numbers.size > 8 and numbers.size % 2 == 0:
        first, second = jnp.split(numbers, 2)
        numbers = first + second
    return jnp.sum(numbers)
