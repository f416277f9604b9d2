"""Online learners of other libraries at their defaults: Vowpal Wabbit's and River's.

Both libraries are optional. They add a constant of their own, so they are not given the streams'
last feature, which is one.
"""

import functools
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from optax_varynorm.racing import figures
from optax_varynorm.racing.linear import Stream

# 2^18 weights: the streams' indices, a few hundred at most, do not collide.
VW_OPTIONS = "--loss_function logistic -b 18 --quiet"
VW_MODES = ("", "--coin", "--freegrad", "--ftrl", "--pistol", "--OjaNewton")


class Library(NamedTuple):
    """``measure(stream)`` gives a record; ``settings`` is the version that it depends on."""

    measure: Callable[[Stream], dict[str, Any]]
    settings: str
    kind: str = "untuned"


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def present() -> dict[str, Library]:
    """The learners of the libraries that are installed, by name."""
    learners: dict[str, Library] = {}
    if is_installed("vowpalwabbit"):
        version = f"vowpalwabbit {importlib.metadata.version('vowpalwabbit')}"
        learners |= {
            f"vw {mode}".strip(): Library(functools.partial(measure_vw, mode), version)
            for mode in VW_MODES
        }
    if is_installed("river"):
        version = f"river {importlib.metadata.version('river')}"
        learners["river logistic"] = Library(functools.partial(measure_river, False), version)
        learners["river scaled logistic"] = Library(functools.partial(measure_river, True), version)
    return learners


def notes() -> list[str]:
    """What is left out because its package is missing, and how to bring it in."""
    brought = {"vowpalwabbit": "Vowpal Wabbit", "river": "River and the streams it ships"}
    return [
        f"Left out: {what}. To bring them in: pip install {package}"
        for package, what in brought.items()
        if not is_installed(package)
    ]


def vw_lines(stream: Stream) -> list[str]:
    """The rows as Vowpal Wabbit's text: labels -1 and 1, integer indices, no zeros."""
    lines = []
    for row, label in zip(stream.features[:, :-1], stream.labels, strict=True):
        values = " ".join(f"{i}:{row[i]:.9g}" for i in np.flatnonzero(row))
        lines.append(f"{1 if label else -1} | {values}")
    return lines


def measure_vw(mode: str, stream: Stream) -> dict[str, Any]:
    """Two readings of the same pass, and the lower one counts.

    One is the loss of the scores from ``predict`` before ``learn``, the other the average loss
    that Vowpal Wabbit itself reports. Some modes look at the row's features, not at its label,
    once more inside ``learn``, and there the readings differ. Scores are its own, which it keeps
    within -50 and 50. The time includes parsing.
    """
    from vowpalwabbit import Workspace

    workspace = Workspace(f"{VW_OPTIONS} {mode}")
    scores = []
    lines = vw_lines(stream)
    began = time.perf_counter()
    for line in lines:
        example = workspace.parse(line)
        scores.append(workspace.predict(example))
        workspace.learn(example)
        workspace.finish_example(example)
    seconds = time.perf_counter() - began
    signs = 2 * stream.labels.astype(np.float64) - 1
    readings = {
        "predict, then learn": np.mean(np.logaddexp(0, -signs * np.array(scores, np.float64))),
        "its own average": workspace.get_sum_loss() / workspace.get_weighted_examples(),
    }
    workspace.finish()
    return {
        "loss": figures.finite(figures.numbers(list(readings.values())).min()),
        "readings": {name: figures.finite(value) for name, value in readings.items()},
        "examples_per_second": len(lines) / seconds,
    }


def measure_river(scaled: bool, stream: Stream) -> dict[str, Any]:
    """``LogisticRegression``, alone or behind a ``StandardScaler``, by River's own ``LogLoss``.

    That metric keeps probabilities 1e-15 away from zero and one. Only the scaler sees zeros:
    without it they change nothing.
    """
    from river import linear_model, metrics, preprocessing

    model: Any = linear_model.LogisticRegression()
    if scaled:
        model = preprocessing.StandardScaler() | model
    rows = [
        {i: value for i, value in enumerate(row) if scaled or value}
        for row in stream.features[:, :-1].tolist()
    ]
    labels = stream.labels.astype(bool).tolist()
    loss = metrics.LogLoss()
    began = time.perf_counter()
    for row, label in zip(rows, labels, strict=True):
        loss.update(label, model.predict_proba_one(row))
        model.learn_one(row, label)
    seconds = time.perf_counter() - began
    return {
        "loss": figures.finite(loss.get()),
        "examples_per_second": len(labels) / seconds,
    }
