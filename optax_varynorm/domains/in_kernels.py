"""Indexing, sums and products in the words that XLA compiles best in a kernel."""

import functools

import jax
import jax.numpy as jnp


def at(array: jax.Array, i) -> jax.Array:
    """An entry; the index is not checked."""
    return array.at[i].get(mode="promise_in_bounds")


def put(array: jax.Array, i, value) -> jax.Array:
    """The array with another entry or row; the index is not checked."""
    return array.at[i].set(value, mode="promise_in_bounds")


def combine(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """The sum of the rows with these weights, written out as four sums side by side."""
    terms = [rows[i] * weights[i] for i in range(weights.size)]
    parts = [functools.reduce(jnp.add, terms[i::4]) for i in range(min(4, len(terms)))]
    return functools.reduce(jnp.add, parts)


def add_up(numbers: jax.Array) -> jax.Array:
    """Their sum. In a kernel it would be taken one by one, but halves are added side by side."""
    while numbers.size > 8 and numbers.size % 2 == 0:
        first, second = jnp.split(numbers, 2)
        numbers = first + second
    return jnp.sum(numbers)
