"""A linear model without a learning rate against all learning rates of three others.

Those play twice: in raw units, and as people use them, with standardized features.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn
from optax_varynorm.demo.streams import (
    COLUMNS,
    Stream,
    best_in_hindsight,
    shuffled_and_standardized,
)

OURS = "scale_invariant"
PEERS: dict[str, Callable] = {"adagrad": optax.adagrad, "adam": optax.adam, "sgd": optax.sgd}
# Half decades: raw units span many, and so do the best learning rates.
RATES = np.geomspace(1e-8, 1e2, 21).astype(np.float32)
RAW, STANDARDIZED = "raw units", "standardized"
ORDERS = 8
ROUNDS_A_CHUNK = 64


class Result(NamedTuple):
    """Attributes:
    learner: its name.
    rates: the learning rates that were tried; ``None`` for a learner that has none.
    game: with an axis of learning rates, if any were tried.
    seconds: with compiling.
    units: ``RAW`` or ``STANDARDIZED``; empty where there is no choice.
    """

    learner: str
    rates: np.ndarray | None
    game: vn.Game
    seconds: float
    units: str = ""

    @property
    def label(self) -> str:
        """The learner and its units."""
        return f"{self.learner}, {self.units}" if self.units else self.learner

    @property
    def mean_losses(self) -> np.ndarray:
        """One a learning rate, of all rounds and orders; infinite where one diverged."""
        settings = 1 if self.rates is None else len(self.rates)
        means = np.mean(self.game.losses.reshape(settings, -1), axis=1, dtype=np.float64)
        return np.where(np.isnan(means), np.inf, means)

    @property
    def best(self) -> int:
        """Which learning rate was best in hindsight."""
        return int(np.argmin(self.mean_losses))

    @property
    def loss(self) -> float:
        """With the best learning rate in hindsight."""
        return float(self.mean_losses[self.best])

    @property
    def best_losses(self) -> np.ndarray:
        """By round, and by order if there are any, with that learning rate."""
        return self.game.losses if self.rates is None else self.game.losses[self.best]

    def loss_off_by(self, factor: float) -> float:
        """With a learning rate that is so many times too large or too small, the worse of both.

        Of those that were tried, and infinite if it failed there; a learner without a learning rate
        cannot be off.
        """
        if self.rates is None:
            return self.loss
        distance = np.abs(np.log(self.rates / self.rates[self.best]))
        off = np.isclose(distance, np.log(factor), rtol=1e-3)
        return float(np.max(self.mean_losses[off]))


def timed(name: str, rates: np.ndarray | None, play: Callable[[], vn.Game]) -> Result:
    """A game and how long it took."""
    began = time.perf_counter()
    return Result(name, rates, play(), time.perf_counter() - began)


def log_loss(weights, example):
    """Of the score ``row @ weights``, for a label 0 or 1."""
    row, label = example
    score = row @ weights
    return jax.nn.softplus(score) - label * score


def features(example):
    """What a learner of a linear model is told before it predicts."""
    return example[0]


def ours():
    """The package's default for linear models."""
    return vn.track_regret(vn.scale_invariant())


def play_ours(stream: Stream, report=None) -> Result:
    """All orders of the rows; regret against the best weights in hindsight."""
    result = timed(
        OURS,
        None,
        lambda: vn.sweep(
            ours,
            log_loss,
            (stream.rows, stream.labels),
            jnp.zeros(COLUMNS),
            ROUNDS_A_CHUNK,
            report,
            seeds=ORDERS,
            comparator=best_in_hindsight(stream),
            features=features,
        ),
    )
    return result._replace(units=RAW)


def play_peer(name: str, stream: Stream, report=None, units: str = RAW) -> Result:
    """All learning rates and all orders of the rows, which are the same for all units."""
    is_raw = units == RAW
    rows = (stream.rows, stream.labels) if is_raw else shuffled_and_standardized(stream)
    result = timed(
        name,
        RATES,
        lambda: vn.sweep(
            PEERS[name],
            log_loss,
            rows,
            jnp.zeros(COLUMNS),
            ROUNDS_A_CHUNK,
            report,
            seeds=ORDERS,
            hyperparameters={"learning_rate": RATES},
        ),
    )
    return result._replace(units=units)
