"""The progressive loss of a contender on a stream, and how fast it was."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optax_varynorm.racing import figures, linear, peers
from optax_varynorm.racing.libraries import Library


def measure(
    contender: peers.Contender | Library,
    stream: linear.Stream,
    loss: Callable = linear.log_loss,
) -> dict[str, Any]:
    """The libraries know how; of optimizers, all learning rates at once and the best of them."""
    if isinstance(contender, Library):
        return contender.measure(stream)
    arrays = tuple(jnp.asarray(array) for array in stream)
    play = functools.partial(linear.play, loss=loss)
    program = jax.jit(peers.play_grid(contender, play)).lower(*arrays).compile()
    began = time.perf_counter()
    losses = jax.block_until_ready(program(*arrays))
    seconds = time.perf_counter() - began
    means = np.mean(np.asarray(losses), axis=1, dtype=np.float64)
    winner = int(np.argmin(figures.numbers(means)))
    record = {
        "loss": figures.finite(means)[winner],
        "examples_per_second": len(stream.labels) / seconds,
    }
    return record | figures.by_learning_rate(contender, winner, means)


def best_constant_log_loss(labels: np.ndarray) -> float:
    """The mean log loss of always predicting the labels' own frequency."""
    share = np.mean(labels, dtype=np.float64)
    return float(-sum(p * np.log(p) for p in (share, 1 - share) if p > 0))


def best_constant_absolute_loss(targets: np.ndarray) -> float:
    """The mean absolute loss of always predicting the median."""
    return float(np.mean(np.abs(np.float64(targets) - np.median(targets))))
