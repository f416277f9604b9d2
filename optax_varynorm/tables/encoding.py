"""From a batch of a table to features and targets, as ``schema`` says.

What a model has not met is counted in ``Surprises``, and has no feature: a category, a missing
value in a column that had none, an index of a LIBSVM file.
"""

import collections

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse

from optax_varynorm.tables.errors import DataError, quoted
from optax_varynorm.tables.schema import Categorical, Numeric, Schema, label_text

NEW_CATEGORY = "with a category never seen before, predicted from the other columns"
MISSING_CATEGORY = "without a value, where all had one before, predicted from the other columns"
MISSING_NUMBER = "without a value, where all had one before, taken as 0"
NEW_INDEX = "with an index never seen before, predicted from the others"


class Surprises(collections.Counter):
    """How many rows had something new, by column and by what was new."""

    def lines(self) -> list[str]:
        return [
            f"column {column!r}: {count:,} rows {what}"
            for (column, what), count in sorted(self.items())
        ]


def require_columns(schema: Schema, table, with_target: bool) -> None:
    """The table has the model's columns."""
    is_sparse = schema.sparse_width is not None
    if is_sparse != table.is_sparse:
        kinds = ("CSV or parquet", "LIBSVM")
        raise DataError(
            f"{table.path}: the model learned from a {kinds[is_sparse]} file, and this is a "
            f"{kinds[not is_sparse]} file."
        )
    needed = [column.name for column in schema.columns]
    needed += [schema.target.name] if with_target else []
    if missing := [name for name in needed if name not in table.columns]:
        raise DataError(
            f"{table.path}: no column {quoted(missing)}, which the model needs. "
            f"The columns are {quoted(table.columns)}."
        )


def features(schema: Schema, table, batch, first_row: int, surprises: Surprises):
    """A dense float32 array, or CSR for a LIBSVM file.

    Args:
      first_row: the number of the batch's first row in the file, for messages.
    """
    if schema.sparse_width is not None:
        return sparse_features(schema.sparse_width, table, batch, first_row, surprises)
    encoded = np.zeros((batch.num_rows, schema.width), np.float32)
    first = 0
    for column in schema.columns:
        part = encoded[:, first : first + column.width]
        if isinstance(column, Numeric):
            values = table.numbers(column.name, batch[column.name], first_row)
            _encode_numbers(column, values, table, first_row, part, surprises)
        else:
            _encode_categories(column, table.text(column.name, batch[column.name]), part, surprises)
        first += column.width
    return encoded


def targets(schema: Schema, table, batch, first_row: int) -> np.ndarray:
    """Indices of classes, or quantities in float64."""
    name, labels = schema.target.name, schema.target.labels
    values = raw_targets(schema.target.is_text, name, table, batch, first_row)
    if labels is None:
        return values
    known = np.array(labels)
    found = np.minimum(np.searchsorted(known, values), len(known) - 1)
    if len(wrong := np.flatnonzero(known[found] != values)):
        raise DataError(
            f"{table.path}: row {first_row + wrong[0]}, column {name!r}: "
            f"{label_text(values[wrong[0]].item())!r} is not one of the classes "
            f"{quoted(map(label_text, labels))}."
        )
    return found


def raw_targets(is_text: bool, name: str, table, batch, first_row: int) -> np.ndarray:
    """Strings or float64, as they are in the file; none may be missing."""
    if table.is_sparse:
        return require_finite(batch.labels, name, table, first_row)
    if is_text:
        column = table.text(name, batch[name])
    else:
        column = table.numbers(name, batch[name], first_row)
    if column.null_count:
        row = first_row + int(np.argmax(column.is_null().to_numpy()))
        raise DataError(
            f"{table.path}: row {row}, column {name!r}: the target is missing. "
            "Fill it in, or take the row out."
        )
    if is_text:
        return np.array(column.to_pylist())
    return require_finite(column.to_numpy(), name, table, first_row)


def require_finite(numbers: np.ndarray, name: str, table, first_row: int) -> np.ndarray:
    """No infinite number, nor one that is infinite in float32."""
    limit = np.finfo(np.float32).max
    if len(wrong := np.flatnonzero(~(np.abs(numbers) <= limit))):
        raise DataError(
            f"{table.path}: row {first_row + wrong[0]}, column {name!r}: {numbers[wrong[0]]} is "
            f"not a finite number of float32, whose largest is {limit:.3g}."
        )
    return numbers


def _encode_numbers(column, values, table, first_row, part, surprises):
    if values.null_count:
        if column.has_missing:
            part[:, 1] = values.is_null().to_numpy()
        else:
            surprises[column.name, MISSING_NUMBER] += values.null_count
        values = pc.fill_null(values, 0.0)
    part[:, 0] = require_finite(values.to_numpy(), column.name, table, first_row)


def _encode_categories(column: Categorical, text, part, surprises):
    known = pa.array(column.categories, pa.string())
    place = pc.index_in(text, known)
    if column.has_missing:
        place = pc.if_else(text.is_null(), pa.scalar(len(known), pa.int32()), place)
    indices = pc.fill_null(place, -1).to_numpy()
    rows = np.flatnonzero(indices >= 0)
    part[rows, indices[rows]] = 1
    if new := place.null_count:
        gone = 0 if column.has_missing else text.null_count
        if gone:
            surprises[column.name, MISSING_CATEGORY] += gone
        if new > gone:
            surprises[column.name, NEW_CATEGORY] += new - gone


def sparse_features(width, table, batch, first_row, surprises):
    rows: scipy.sparse.csr_matrix = batch.features
    largest = np.finfo(np.float32).max
    if len(wrong := np.flatnonzero(~(np.abs(rows.data) <= largest))):
        row = first_row + int(np.searchsorted(rows.indptr, wrong[0], side="right")) - 1
        raise DataError(
            f"{table.path}: row {row}, feature {rows.indices[wrong[0]]}: {rows.data[wrong[0]]} is "
            f"not a finite number of float32, whose largest is {largest:.3g}."
        )
    is_new = scipy.sparse.csr_matrix((rows.indices >= width, rows.indices, rows.indptr), rows.shape)
    if new := int(np.count_nonzero(is_new.sum(axis=1))):
        surprises["index:value", NEW_INDEX] += new
    rows.resize((rows.shape[0], width))
    return rows.astype(np.float32)
