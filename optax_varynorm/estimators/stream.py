"""One pass over a stream of rows, one row at a time, in compiled chunks of one size.

What is compiled depends on the learner, the loss and the shapes only: all estimators that share
them share it, whatever the number of their rows.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse

from optax_varynorm.linear_optimizers import (
    diagonal_scale_invariant,
    full_matrix_scale_invariant,
    scale_invariant,
)
from optax_varynorm.two_calls import predict_then_update

LEARNERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "default": scale_invariant,
    "diagonal": diagonal_scale_invariant,
    "full_matrix": full_matrix_scale_invariant,
}

# A chunk is dense: this many rows, or fewer where a row is long.
MOST_ROWS_A_CHUNK = 1024
MOST_NUMBERS_A_CHUNK = 2**20
# Rows are padded to a multiple of so many numbers, so that widths that are close compile once.
# A feature that is always zero is one that no learner sees.
COLUMNS_A_STEP = 8


class Task(NamedTuple):
    """Attributes:
    learner: a name, or an Optax optimizer.
    loss: one of ``losses``.
    """

    learner: str | optax.GradientTransformation
    loss: Callable


class Numbers(NamedTuple):
    """What may change without another compilation.

    Attributes:
      epsilon: of the learner; ``None`` for its default.
      loss_parameter: of the loss.
    """

    epsilon: np.ndarray | None
    loss_parameter: np.ndarray


class Played(NamedTuple):
    """Attributes:
    learner_states: one an output: a class, or the regressor's only one.
    averages: of the points each has played, by the weight of the rows.
    weight_sum: the weight of all rows.
    """

    learner_states: Any
    averages: jax.Array
    weight_sum: jax.Array


def start(task: Task, numbers: Numbers, outputs: int, features: int, dtype: np.dtype) -> Played:
    """Before the first row: a learner for each output, at zero."""
    width = -(-(features + 1) // COLUMNS_A_STEP) * COLUMNS_A_STEP
    return _start(task, numbers, (outputs, width), dtype)


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _start(task, numbers, shape, dtype):
    points = jnp.zeros(shape, dtype)
    learner_states = _for_each_output(_learner(task, numbers).init, points)
    return Played(learner_states, points, jnp.zeros((), points.dtype))


def play(task: Task, numbers: Numbers, played: Played, rows, constant, targets, weights):
    """Predict, pay, learn, for every row.

    Args:
      rows: a NumPy array or a SciPy CSR matrix, made dense chunk by chunk.
      constant: the feature after those of the rows.

    Returns:
      What was played, the scores of each row before it was learned from, and their losses.
    """
    width = played.averages.shape[1]
    size = _rows_a_chunk(width)
    all_scores, all_losses = [], []
    for first in range(0, len(targets), size):
        count = min(size, len(targets) - first)
        chunk = slice(first, first + count)
        dense = fill(rows[chunk], (size, width))
        dense[:count, rows.shape[1]] = constant
        played, scores, values = _play_chunk(
            task,
            numbers,
            played,
            dense,
            fill(targets[chunk], (size,)),
            fill(weights[chunk], (size,)),
            count,
        )
        all_scores.append(np.asarray(scores)[:count])
        all_losses.append(np.asarray(values)[:count])
    return played, np.concatenate(all_scores), np.concatenate(all_losses)


def next_points(task: Task, numbers: Numbers, played: Played) -> jax.Array:
    """Where the learners are after the last row: one of zeros shows it, and teaches nothing."""
    width = played.averages.shape[1]
    zeros = np.zeros((_rows_a_chunk(width), width), played.averages.dtype)
    played, *_ = _play_chunk(task, numbers, played, zeros, zeros[:, 0], zeros[:, 0], 1)
    return played.learner_states.played_point


@functools.partial(jax.jit, static_argnums=0)
def _play_chunk(task, numbers, played, rows, targets, weights, count):
    learner = _learner(task, numbers)

    def play_row(index, carry):
        (learner_states, averages, weight_sum), all_scores, all_losses = carry
        row, weight = rows[index], weights[index]
        # A row of weight c and loss l(<f, w>) is one of weight one that has c f for features: its
        # gradient is at most as long as they are, whatever c is.
        weighted_row = weight * row
        points, learner_states = _for_each_output(
            lambda state: learner.predict(state, weighted_row), learner_states
        )
        scores = points @ row
        loss, slopes = jax.value_and_grad(task.loss)(scores, targets[index], numbers.loss_parameter)
        gradients = slopes[:, None] * weighted_row[None]
        learner_states = _for_each_output(learner.update, learner_states, gradients)
        weight_sum = weight_sum + weight
        share = weight / jnp.where(weight_sum > 0, weight_sum, 1)
        played = Played(learner_states, averages + share * (points - averages), weight_sum)
        return played, all_scores.at[index].set(scores), all_losses.at[index].set(loss)

    none_yet = jnp.zeros((len(rows), len(played.averages)), rows.dtype)
    return jax.lax.fori_loop(0, count, play_row, (played, none_yet, none_yet[:, 0]))


def optimizer_of(task: Task, numbers: Numbers) -> optax.GradientTransformation:
    if not isinstance(task.learner, str):
        return task.learner
    setting = {} if numbers.epsilon is None else {"epsilon": numbers.epsilon}
    return LEARNERS[task.learner](**setting)


def _learner(task, numbers):
    return predict_then_update(optimizer_of(task, numbers))


def _for_each_output(function, *arguments):
    """``vmap``, except that a single output is not batched: batched conditions cost both sides."""
    if len(jax.tree.leaves(arguments)[0]) > 1:
        return jax.vmap(function)(*arguments)
    alone = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
    return jax.tree.map(lambda leaf: leaf[None], alone)


def _rows_a_chunk(width):
    return max(1, min(MOST_ROWS_A_CHUNK, MOST_NUMBERS_A_CHUNK // width))


def fill(rows, shape) -> np.ndarray:
    """A dense chunk of this shape that begins with the rows, and is zero elsewhere."""
    dense = rows.toarray() if scipy.sparse.issparse(rows) else rows
    filled = np.zeros(shape, dense.dtype)
    filled[tuple(map(slice, dense.shape))] = dense
    return filled
