"""One pass over a stream of sparse rows, for learners that are one a coordinate.

A row costs what it has of numbers that are not zero, whatever the number of features.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from optax_varynorm.estimators import stream
from optax_varynorm.kernels import one_kernel
from optax_varynorm.reductions.per_coordinate import coordinate_learner_of
from optax_varynorm.sparse_rounds import SparseLearnerState, sparse_predict_then_update

# Rows are filled up to a power of two, this one at least.
SHORTEST = 8
# Rows of more than one number in so many features are made dense.
FEATURES_A_NUMBER = 4
# Rounds of more numbers are long enough for kernels of their own.
MOST_NUMBERS_IN_ONE_KERNEL = 512


class ShortRows(NamedTuple):
    """Attributes:
    indices: which features of each row may be not zero, filled up by the number of features.
    values: their values, filled up by zeros.
    """

    indices: np.ndarray
    values: np.ndarray


def suits(task: stream.Task, numbers: stream.Numbers, played: stream.Played, rows) -> bool:
    """Whether the rows are sparse, and the learner is Algorithm 3 with a bettor of this package.

    Of learners without a name nobody knows that: a bettor with momentum, for example, goes on.
    """
    if not (scipy.sparse.issparse(rows) and isinstance(task.learner, str)):
        return False
    optimizer = stream.optimizer_of(task, numbers)
    return coordinate_learner_of(optimizer, played.averages.shape[1]) is not None


def play(task, numbers, played: stream.Played, rows, constant, targets, weights):
    """Like ``stream.play``, but for the averages, which stay as they are.

    Args:
      rows: a SciPy CSR matrix. Chunks of it in which a row is long are made dense.
    """
    width = played.averages.shape[1]
    packed = None
    parts = []
    for first in range(0, len(targets), stream.MOST_ROWS_A_CHUNK):
        chunk = slice(first, first + stream.MOST_ROWS_A_CHUNK)
        short = _shorten(rows[chunk], constant, width)
        if short is None:
            if packed is not None:
                played, packed = _unpack(task, numbers, played, packed), None
            played, *part = stream.play(
                task, numbers, played, rows[chunk], constant, targets[chunk], weights[chunk]
            )
        else:
            if packed is None:
                packed = _pack(task, numbers, played.learner_states)
            packed, *part = _play_chunk(
                task,
                numbers,
                packed,
                short,
                stream.fill(targets[chunk], short.indices.shape[:1]),
                stream.fill(weights[chunk], short.indices.shape[:1]),
                len(targets[chunk]),
            )
        parts.append([np.asarray(each)[: len(targets[chunk])] for each in part])
    if packed is not None:
        played = _unpack(task, numbers, played, packed)
    scores, losses = map(np.concatenate, zip(*parts, strict=True))
    return played, scores, losses


def _shorten(rows, constant, width) -> ShortRows | None:
    """A chunk without its zeros, or ``None`` if that would be no shorter."""
    rows.sum_duplicates()
    counts = np.diff(rows.indptr)
    length = max(SHORTEST, 1 << int(counts.max()).bit_length())
    if length * FEATURES_A_NUMBER > width:
        return None
    indices = np.full((stream.MOST_ROWS_A_CHUNK, length), width, np.int32)
    values = np.zeros(indices.shape, rows.dtype)
    row = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], counts)
    indices[row, place], values[row, place] = rows.indices, rows.data
    every = np.arange(len(counts))
    indices[every, counts], values[every, counts] = rows.shape[1], constant
    return ShortRows(indices, values)


@functools.partial(jax.jit, static_argnums=0)
def _pack(task, numbers, learner_states) -> SparseLearnerState:
    return jax.vmap(_learner(task, numbers).pack)(learner_states)


@functools.partial(jax.jit, static_argnums=0)
def _unpack(task, numbers, played, packed) -> stream.Played:
    return played._replace(learner_states=jax.vmap(_learner(task, numbers).unpack)(packed))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _play_chunk(task, numbers, packed, rows: ShortRows, targets, weights, count):
    learner = _learner(task, numbers)
    predict = jax.vmap(learner.predict, in_axes=(0, None, None))
    update = jax.vmap(learner.update)

    def play_row(index, carry):
        packed, all_scores, all_losses = carry
        row = rows.values[index]
        weighted_row = weights[index] * row
        points, visit = predict(packed, rows.indices[index], weighted_row)
        scores = jnp.sum(points * row[None], axis=1)
        loss, slopes = jax.value_and_grad(task.loss)(scores, targets[index], numbers.loss_parameter)
        packed = update(packed, visit, slopes[:, None] * weighted_row[None])
        put = functools.partial(jax.lax.dynamic_update_index_in_dim, index=index, axis=0)
        return packed, put(all_scores, scores), put(all_losses, loss)

    def play_rows(packed):
        none_yet = jnp.zeros((len(targets), len(packed.table)), rows.values.dtype)
        return jax.lax.fori_loop(0, count, play_row, (packed, none_yet, none_yet[:, 0]))

    rows, targets, weights = jax.tree.map(jnp.asarray, (rows, targets, weights))
    is_small = len(packed.table) * rows.values.shape[1] <= MOST_NUMBERS_IN_ONE_KERNEL
    if is_small:
        play_rows = one_kernel(play_rows)
    return play_rows(packed)


def _learner(task, numbers):
    return sparse_predict_then_update(stream.optimizer_of(task, numbers))
