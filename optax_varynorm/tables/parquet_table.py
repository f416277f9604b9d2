"""Parquet files, a batch of rows at a time."""

import pathlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from optax_varynorm.tables import batches
from optax_varynorm.tables.errors import DataError, require_different


class ParquetTable:
    """Attributes:
    columns: the names.
    total_rows: from the file's own index.
    """

    has_header = True
    is_sparse = False

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            file = pyarrow.parquet.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: {str(error).splitlines()[0]}") from error
        self.columns = file.schema_arrow.names
        require_different(path, self.columns)
        self.total_rows = file.metadata.num_rows

    def batches(self, size: int, skip: int = 0) -> Iterator[pa.Table]:
        """All columns in their own types, in tables of ``size`` rows."""
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                yield from batches.of_size(file.iter_batches(size), size, skip)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: {str(error).splitlines()[0]}") from error

    def kind(self, column: pa.ChunkedArray) -> str | None:
        """By its type."""
        return "numeric" if _is_numeric(_value_type(column)) else "categorical"

    def numbers(self, name: str, column: pa.ChunkedArray, first_row: int) -> pa.ChunkedArray:
        """As float64, null where missing, as is NaN."""
        kind = _value_type(column)
        if not _is_numeric(kind):
            raise DataError(
                f"{self.path}: column {name!r} has {kind} where the model learned from numbers."
            )
        numbers = pc.cast(pc.cast(column, kind), pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)

    def text(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Null where missing; of integers, their digits."""
        kind = _value_type(column)
        if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind)):
            raise DataError(
                f"{self.path}: column {name!r} is of type {kind}, neither numbers nor text. "
                f"Leave it out: --drop {name}"
            )
        return pc.cast(pc.cast(column, kind), pa.string())


def _value_type(column):
    kind = column.type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_numeric(kind):
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests) or pa.types.is_decimal(kind)


def _is_text(kind):
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string))
