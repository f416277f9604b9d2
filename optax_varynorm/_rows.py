"""A few rows of a table, read and written in place."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap


@custom_vmap
def take_rows(table: jax.Array, indices: jax.Array) -> jax.Array:
    """The rows of these indices."""
    return table.at[indices].get(mode="promise_in_bounds")


@custom_vmap
def put_rows(table: jax.Array, indices: jax.Array, rows: jax.Array) -> jax.Array:
    """The table with these rows in place of its own. Of equal indices, the last one counts."""
    if jax.default_backend() != "cpu":
        return table.at[indices].set(rows, mode="promise_in_bounds")

    # What XLA makes of a scatter on a CPU moves single numbers.
    def put(k, table):
        row = jax.lax.dynamic_slice_in_dim(rows, k, 1)
        return jax.lax.dynamic_update_slice_in_dim(table, row, indices[k], 0)

    return jax.lax.fori_loop(0, len(indices), put, table)


def one_long_vmap(function: Callable) -> Callable:
    """``vmap``, where a ``vmap`` around it makes the axis longer instead of adding another.

    XLA does not vectorize loops of a dozen trips inside of others.
    """
    each = custom_vmap(jax.vmap(function))

    @each.def_vmap
    def all_at_once(count, batched, *arguments):
        leaves, structure = jax.tree.flatten(arguments)
        leaves = _batched(count, jax.tree.leaves(batched), *leaves)
        flat = [leaf.reshape(-1, *leaf.shape[2:]) for leaf in leaves]
        result = each(*jax.tree.unflatten(structure, flat))
        result = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), result)
        return result, jax.tree.map(lambda _: True, result)

    return each


@take_rows.def_vmap
def _take_of_each(count, batched, tables, indices):
    """Several tables are a long one."""
    (tables, indices), length = _batched(count, batched, tables, indices), tables.shape[-2]
    taken = take_rows(_joined(tables), _in_joined(indices, length))
    return taken.reshape(*indices.shape, -1), True


@put_rows.def_vmap
def _put_in_each(count, batched, tables, indices, rows):
    tables, indices, rows = _batched(count, batched, tables, indices, rows)
    put = put_rows(_joined(tables), _in_joined(indices, tables.shape[1]), _joined(rows))
    return put.reshape(tables.shape), True


def _batched(count, batched, *arrays):
    return tuple(
        array if is_batched else jnp.broadcast_to(array, (count, *array.shape))
        for array, is_batched in zip(arrays, batched, strict=True)
    )


def _joined(tables):
    return tables.reshape(-1, tables.shape[-1])


def _in_joined(indices, length):
    first = length * jnp.arange(len(indices), dtype=indices.dtype)
    return (indices + first[:, None]).reshape(-1)
