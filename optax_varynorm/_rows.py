"""A few rows of a table, read and written in place."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from optax_varynorm._in_place import rarely

# As many rows are turned into pieces of columns at a time. XLA's CPU backend keeps the counter of a
# loop in memory, and waits for it longer than one row takes; the pieces are loaded as vectors.
ROWS_A_TRIP = 8


def take_columns(table: jax.Array, indices: jax.Array, count: int) -> list[jax.Array]:
    """The first columns of the rows of these indices."""

    @of_a_long_table
    def take(table, indices):
        if jax.default_backend() != "cpu":
            return [table.at[indices, k].get(mode="promise_in_bounds") for k in range(count)]
        return _take_by_blocks(table, indices, 0, count)

    return take(table, indices)


def put_columns(table: jax.Array, indices: jax.Array, columns: list[jax.Array]) -> jax.Array:
    """The table with these numbers in the first columns of these rows.

    Of equal indices, the last one counts.
    """

    @of_a_long_table
    def put(table, indices, *columns):
        if jax.default_backend() != "cpu":
            rows = jnp.stack(columns, axis=1)
            return table.at[indices, : len(columns)].set(rows, mode="promise_in_bounds")
        return _put_by_blocks(table, indices, 0, columns)

    return put(table, indices, *columns)


def change_rarely(
    table: jax.Array,
    indices: jax.Array,
    first: int,
    is_due: jax.Array,
    function: Callable,
    *arguments: jax.Array,
) -> jax.Array:
    """The table with other columns in these rows, if any of them is due.

    Args:
      table: the table.
      indices: of the rows.
      first: the first of the columns to change; they are the last of the table.
      is_due: for each of the rows.
      function: from those columns of the rows, and arguments, to what shall be there.
      arguments: arrays with a number for each of the rows.
    """

    @of_a_long_table
    def change(table, indices, is_due, *arguments):
        def all_of_them(table, indices, *arguments):
            columns = _take_by_blocks(table, indices, first, table.shape[1] - first)
            return _put_by_blocks(table, indices, first, function(columns, *arguments))

        return rarely(jnp.any(is_due), all_of_them, table, indices, *arguments)

    return change(table, indices, is_due, *arguments)


def of_a_long_table(function: Callable) -> Callable:
    """A function of a table, indices of rows and a number for each; several tables are a long one.

    Under ``vmap``, that is. The function returns a table or numbers for each of the rows.
    """
    apply = custom_vmap(function)

    @apply.def_vmap
    def apply_to_all(count, batched, *arguments):
        tables, indices, *columns = _batched(count, batched, *arguments)
        length, width = tables.shape[1:]
        first = length * jnp.arange(count, dtype=indices.dtype)
        result = apply(
            tables.reshape(-1, width),
            (indices + first[:, None]).reshape(-1),
            *(column.reshape(-1) for column in columns),
        )
        result = jax.tree.map(
            lambda array: array.reshape(count, -1, *array.shape[1:]),
            result,
        )
        return result, jax.tree.map(lambda _: True, result)

    return apply


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


def _take_by_blocks(table, indices, first, count):
    padded = _fill_up(indices)

    def take(k, columns):
        (block,) = _slices(k, padded)
        rows = jax.vmap(lambda row: _row(table, row, first, count))(block)
        return jax.lax.dynamic_update_slice(
            columns, rows.T, (np.int32(0), _start(k)), allow_negative_indices=False
        )

    nothing = jnp.zeros((count, len(padded)), table.dtype)
    columns = jax.lax.fori_loop(0, len(padded) // ROWS_A_TRIP, take, nothing)
    return [column[: len(indices)] for column in columns]


def _put_by_blocks(table, indices, first, columns):
    padded, stacked = _fill_up(indices), jnp.stack([*map(_fill_up, columns)])

    def put(k, table):
        block, rows = _slices(k, padded, stacked)
        for j in range(ROWS_A_TRIP):
            table = jax.lax.dynamic_update_slice(
                table,
                rows[:, j][None],
                (block[j], block.dtype.type(first)),
                allow_negative_indices=False,
            )
        return table

    return jax.lax.fori_loop(0, len(padded) // ROWS_A_TRIP, put, table)


def _row(table, row, first, count):
    start = row, row.dtype.type(first)
    return jax.lax.dynamic_slice(table, start, (1, count), allow_negative_indices=False)[0]


def _slices(k, *arrays):
    """The numbers of a trip, at the end of each array's shape."""
    return [
        jax.lax.dynamic_slice(
            array,
            (*(np.int32(0),) * (array.ndim - 1), _start(k)),
            (*array.shape[:-1], ROWS_A_TRIP),
            allow_negative_indices=False,
        )
        for array in arrays
    ]


def _start(k):
    """In 32 bits, like the indices, also where 64 are usual."""
    return (k * ROWS_A_TRIP).astype(np.int32)


def _fill_up(numbers):
    """The last number is repeated: writing a row twice does no harm."""
    missing = -len(numbers) % ROWS_A_TRIP
    return jnp.pad(numbers, (0, missing), mode="edge") if missing else numbers


def _batched(count, batched, *arrays):
    return tuple(
        array if is_batched else jnp.broadcast_to(array, (count, *array.shape))
        for array, is_batched in zip(arrays, batched, strict=True)
    )
