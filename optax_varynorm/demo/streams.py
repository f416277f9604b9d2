"""Three streams that ship with scikit-learn, in raw units."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

# All streams have as many columns, so that one compiled program plays them all. A column of
# zeros changes no prediction of any learner here.
COLUMNS = 65


class Stream(NamedTuple):
    """Attributes:
    name: as in scikit-learn.
    rows: in the units they came in, then a constant one, then zeros.
    labels: 0 or 1.
    columns: how many there really are, without the constant.
    """

    name: str
    rows: np.ndarray
    labels: np.ndarray
    columns: int


def breast_cancer() -> Stream:
    """Is a tumour benign? 30 measurements; the largest are a million times the smallest."""
    features, labels = datasets.load_breast_cancer(return_X_y=True)
    return _arrange("breast_cancer", features, labels == 1)


def digits() -> Stream:
    """Is a handwritten digit odd? 64 pixels from 0 to 16."""
    features, digits = datasets.load_digits(return_X_y=True)
    return _arrange("digits", features, digits % 2 == 1)


def diabetes() -> Stream:
    """Does a disease progress faster than in half of the patients? 10 measurements.

    No constant of this package was chosen on this stream.
    """
    features, progress = datasets.load_diabetes(return_X_y=True, scaled=False)
    return _arrange("diabetes", features, progress > np.median(progress))


def shuffled_and_standardized(stream: Stream) -> Callable[[jax.Array], tuple]:
    """Rows and labels in an order by a key, the one that a sweep shuffles them in.

    Each number is measured from the mean of those so far, this one among them, in units of their
    standard deviation: what somebody does who has no second pass. The constant stays.
    """

    def draw(key):
        order = jax.random.permutation(key, len(stream.labels))
        rows = jnp.asarray(stream.rows)[order]
        is_constant = jnp.arange(COLUMNS) >= stream.columns
        standardized = jnp.where(is_constant, rows, standardize(rows))
        return standardized, jnp.asarray(stream.labels)[order]

    return draw


def standardize(rows: jax.Array) -> jax.Array:
    """By the running mean and variance (Welford); zero while all are the same."""

    def step(carry, row):
        count, mean, squares = carry
        count = count + 1
        new_mean = mean + (row - mean) / count
        squares = squares + (row - mean) * (row - new_mean)
        scale = jnp.sqrt(squares / count)
        known = scale > 0
        return (count, new_mean, squares), jnp.where(
            known, (row - new_mean) / jnp.where(known, scale, 1), 0
        )

    zeros = jnp.zeros(rows.shape[1:], rows.dtype)
    return jax.lax.scan(step, (jnp.zeros((), rows.dtype), zeros, zeros), rows)[1]


def with_rescaled_column(stream: Stream, column: int, factor: float) -> Stream:
    """The same data, one column of it in other units."""
    rows = stream.rows.copy()
    rows[:, column] *= np.float32(factor)
    return stream._replace(rows=rows)


def best_in_hindsight(stream: Stream) -> np.ndarray:
    """A logistic regression of all rows at once, mildly regularized; weights for raw units."""
    features = stream.rows[:, : stream.columns].astype(np.float64)
    scaler = StandardScaler().fit(features)
    scale = np.asarray(scaler.scale_)
    model = LogisticRegression(C=1.0, max_iter=5000)
    model.fit(scaler.transform(features), stream.labels)
    weights = np.zeros(COLUMNS)
    weights[: stream.columns] = model.coef_[0] / scale
    weights[stream.columns] = model.intercept_[0] - weights[: stream.columns] @ scaler.mean_
    return weights.astype(np.float32)


def _arrange(name, features, is_positive) -> Stream:
    count, columns = features.shape
    rows = np.zeros((count, COLUMNS), np.float32)
    rows[:, :columns] = features
    rows[:, columns] = 1
    return Stream(name, rows, is_positive.astype(np.float32), columns)
