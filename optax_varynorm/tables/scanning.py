"""The first pass over a table: which columns, categories and classes there are."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from optax_varynorm.tables import encoding
from optax_varynorm.tables.errors import DataError, quoted
from optax_varynorm.tables.schema import Categorical, Numeric, Schema, Target

ROWS_A_BATCH = 16_384
# More than this and a target of numbers is a quantity.
MOST_CLASSES = 1000


class Scanned(NamedTuple):
    """Attributes:
    schema: with all the target's different values as its labels, or ``None`` above the most.
    rows: how many.
    label_counts: of each label, if there are labels.
    """

    schema: Schema
    rows: int
    label_counts: tuple[int, ...] | None


def scan(
    table,
    target: str,
    categorical: Iterable[str] = (),
    drop: Iterable[str] = (),
    most_categories: int = 1000,
    report: Callable[[int], None] = lambda rows: None,
) -> Scanned:
    """Read all rows once, and fail at the first that cannot be learned from.

    Args:
      target: the column to predict.
      categorical: columns to take for categories even if they are numbers.
      drop: columns to leave out.
      most_categories: that a column may have.
      report: called after each batch with the rows so far.
    """
    _require_names(table, target, categorical, drop)
    seen_targets = _Targets(table, target, target in categorical)
    names = [name for name in table.columns if name != target and name not in drop]
    columns = [_Column(table, name, name in categorical, most_categories) for name in names]
    rows = width = 0
    for batch in table.batches(ROWS_A_BATCH):
        if table.is_sparse:
            width = max(width, batch.features.shape[1])
            encoding.sparse_features(width, table, batch, rows + 1, encoding.Surprises())
        for column in columns:
            column.look(batch, rows + 1)
        seen_targets.look(batch, rows + 1)
        rows += batch.num_rows
        report(rows)
    if not rows:
        raise DataError(f"{table.path}: there is a header, and no row after it.")
    sparse_width = width if table.is_sparse else None
    labels, counts = seen_targets.found()
    schema = Schema(Target(target, labels), tuple(c.found() for c in columns), sparse_width)
    if not schema.width:
        raise DataError(f"{table.path}: there is no column to predict {target!r} from.")
    return Scanned(schema, rows, counts)


class _Column:
    """What was seen of a column so far."""

    def __init__(self, table, name, is_categorical, most_categories):
        self.table, self.name, self.most_categories = table, name, most_categories
        self.kind = "categorical" if is_categorical else None
        self.has_missing = False
        self.categories: set[str] = set()

    def look(self, batch, first_row):
        values = batch[self.name]
        self.kind = self.kind or self.table.kind(values)
        if self.kind is None:
            self.has_missing = True
            return
        if self.kind == "numeric":
            values = self.table.numbers(self.name, values, first_row)
            present = pc.fill_null(values, 0.0).to_numpy()
            encoding.require_finite(present, self.name, self.table, first_row)
        else:
            values = self.table.text(self.name, values)
            self.categories |= {*pc.unique(values.drop_null()).to_pylist()}
        self.has_missing |= bool(values.null_count)
        if len(self.categories) > self.most_categories:
            raise DataError(
                f"{self.table.path}: column {self.name!r} has more than {self.most_categories} "
                f"categories. Leave it out: --drop {self.name}, or allow more: --most-categories"
            )

    def found(self):
        if self.kind == "categorical":
            return Categorical(self.name, self.has_missing, tuple(sorted(self.categories)))
        return Numeric(self.name, self.has_missing)


class _Targets:
    """The different values of the target, until there are too many to be classes."""

    def __init__(self, table, name, is_categorical):
        self.table, self.name = table, name
        self.is_text = True if is_categorical else None
        self.counts: dict | None = {}

    def look(self, batch, first_row):
        if self.is_text is None:
            sparse = self.table.is_sparse
            self.is_text = not sparse and self.table.kind(batch[self.name]) == "categorical"
        values = encoding.raw_targets(self.is_text, self.name, self.table, batch, first_row)
        if self.counts is None:
            return
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            self.counts[value.item()] = self.counts.get(value.item(), 0) + int(count)
        if len(self.counts) > MOST_CLASSES:
            if self.is_text:
                raise DataError(
                    f"{self.table.path}: the target {self.name!r} has more than {MOST_CLASSES} "
                    "different texts, too many for classes."
                )
            self.counts = None

    def found(self):
        if self.counts is None:
            return None, None
        labels = tuple(sorted(self.counts))
        return labels, tuple(self.counts[label] for label in labels)


def _require_names(table, target, categorical, drop):
    options = [("--target", target)]
    options += [("--categorical", name) for name in categorical]
    options += [("--drop", name) for name in drop]
    for option, name in options:
        if name not in table.columns:
            raise DataError(
                f"{table.path}: {option} {name}: there is no such column. "
                f"The columns are {quoted(table.columns)}."
            )
    if target in drop:
        raise DataError(f"{table.path}: {target!r} is the target and cannot be dropped.")
