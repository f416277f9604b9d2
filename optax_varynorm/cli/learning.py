"""The second pass: predict every row, then learn from it, until the end or Ctrl-C."""

import threading
import time
from typing import NamedTuple

import numpy as np

from optax_varynorm.cli import progress
from optax_varynorm.cli.model_file import Model
from optax_varynorm.estimators import VaryNormClassifier
from optax_varynorm.tables import encoding

# A batch is dense: this many rows, or fewer where a row is long.
MOST_ROWS_A_BATCH = 4096
MOST_NUMBERS_A_BATCH = 2**22


def rows_a_batch(width: int) -> int:
    return max(1, min(MOST_ROWS_A_BATCH, MOST_NUMBERS_A_BATCH // width))


class Learned(NamedTuple):
    """Attributes:
    model: after the last row.
    surprises: what it had not met before.
    seconds: that all took.
    rows_per_second: after the first batch, which compiles; ``None`` if it is alone.
    """

    model: Model
    surprises: encoding.Surprises
    seconds: float
    rows_per_second: float | None


def learn(model: Model, table, asked_to_stop: threading.Event, show: progress.Show) -> Learned:
    """Learn from the rows of the table that the model has not seen.

    Args:
      model: its estimator and curve are changed.
      asked_to_stop: looked at after each batch.
      show: told the rows of the file that were learned so far.
    """
    surprises = encoding.Surprises()
    size = rows_a_batch(model.schema.width)
    learned, wrong = model.source.learned, model.wrong
    clock = [(time.perf_counter(), learned)]
    for batch in table.batches(size, skip=learned):
        features = encoding.features(model.schema, table, batch, learned + 1, surprises)
        targets = encoding.targets(model.schema, table, batch, learned + 1)
        wrong += _learn_batch(model.estimator, model.schema.target.labels, features, targets)
        model.curve.add(model.estimator.progressive_losses_)
        learned += batch.num_rows
        clock.append((time.perf_counter(), learned))
        show(learned, f"loss {model.estimator.progressive_loss_:.4g}")
        if asked_to_stop.is_set():
            break
    model = model._replace(source=model.source._replace(learned=learned), wrong=wrong)
    (start, _), (compiled, before), (end, after) = clock[0], clock[1], clock[-1]
    speed = (after - before) / (end - compiled) if after > before else None
    return Learned(model, surprises, end - start, speed)


def _learn_batch(estimator, labels, features, targets) -> int:
    """How many classes were predicted wrongly; none of quantities."""
    if not isinstance(estimator, VaryNormClassifier):
        estimator.partial_fit(features, targets)
        return 0
    estimator.partial_fit(features, targets, classes=np.arange(len(labels)))
    scores = estimator.progressive_predictions_
    guesses = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
    return int(np.count_nonzero(guesses != targets))
