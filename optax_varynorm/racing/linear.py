"""Linear models that predict, pay and learn, round after round."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from optax_varynorm.sparse_rounds import sparse_predict_then_update


class Stream(NamedTuple):
    """Rows in raw units, a constant one appended; labels are 0 or 1, or the targets."""

    features: np.ndarray
    labels: np.ndarray


def log_loss(score, label):
    """``log(1 + exp(score)) - label * score``, and its derivative by the score."""
    return jax.nn.softplus(score) - label * score, jax.nn.sigmoid(score) - label


def absolute_loss(score, target):
    """The distance, and its derivative by the score."""
    return jnp.abs(score - target), jnp.sign(score - target)


def rounds(optimizer, dimension: int, loss: Callable = log_loss):
    """The round, and the carry of parameters and state that the first one starts from.

    The rows are on offer to learners that take ``features`` (this round's) and ``next_features``.
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def play_round(carry, example):
        params, state = carry
        row, next_row, label = example
        value, slope = loss(row @ params, label)
        updates, state = optimizer.update(
            slope * row, state, params, features=row, next_features=next_row
        )
        return (optax.apply_updates(params, updates), state), value

    params = jnp.zeros(dimension)
    return play_round, (params, optimizer.init(params))


def sparse_rounds(optimizer, dimension: int, loss: Callable = log_loss):
    """The round of an example ``(indices, values, label)``, and the first one's state.

    For optimizers that are one learner a coordinate.
    """
    learner = sparse_predict_then_update(optimizer)

    def play_round(state, example):
        indices, values, label = example
        weights, visit = learner.predict(state, indices, values)
        value, slope = loss(jnp.sum(weights * values), label)
        return learner.update(state, visit, slope * values), value

    return play_round, learner.init(dimension)


def play(optimizer, features, labels, loss: Callable = log_loss):
    """The loss of each round, paid before it is learned from.

    The last row has no next, and stands in for it.
    """
    play_round, carry = rounds(optimizer, features.shape[1], loss)
    next_rows = jnp.concatenate([features[1:], features[-1:]])
    return jax.lax.scan(play_round, carry, (features, next_rows, labels))[1]
