"""CSV files, by pyarrow's streaming reader; every field stays text until a column's kind is known.

Rows are counted from one, after the header.
"""

import csv
import io
import pathlib
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv

from optax_varynorm.tables import batches
from optax_varynorm.tables.columns import clean, is_number, read_numbers
from optax_varynorm.tables.errors import DataError, quoted
from optax_varynorm.tables.files import open_bytes

ARROW_PLACE = re.compile(r"In CSV column #(\d+): Row #(\d+): (.*)")


class CsvTable:
    """Attributes:
    columns: the names; of a file without a header, the numbers from 1.
    total_rows: unknown before the last row.
    """

    total_rows: int | None = None
    is_sparse = False

    def __init__(self, path: pathlib.Path, header: bool | None, delimiter: str):
        self.path = path
        self.delimiter = delimiter
        self.empty_lines, first = self._first_row()
        self.has_header = _looks_like_a_header(first) if header is None else header
        numbers = [str(number) for number in range(1, len(first) + 1)]
        self.columns = [name.strip() for name in first] if self.has_header else numbers
        if twice := {name for name in self.columns if self.columns.count(name) > 1}:
            raise DataError(
                f"{path}: two columns have the name {quoted(sorted(twice))}; rename one."
            )

    def batches(self, size: int, skip: int = 0) -> Iterator[pa.Table]:
        """All columns as text, in tables of ``size`` rows."""
        ragged: list = []

        def refuse(row):
            ragged.append(row)
            return "error"

        try:
            reader = pyarrow.csv.open_csv(
                str(self.path),
                pyarrow.csv.ReadOptions(
                    column_names=self.columns,
                    skip_rows=self.empty_lines,
                    skip_rows_after_names=int(self.has_header),
                    use_threads=False,  # only then are ragged rows numbered
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=refuse
                ),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.columns, pa.string()), strings_can_be_null=False
                ),
            )
            with reader:
                yield from batches.of_size(reader, size, skip)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: {self._why(ragged, error)}") from error

    def kind(self, column: pa.ChunkedArray) -> str | None:
        """Numeric if its first value is a number; ``None`` if all are missing."""
        present = clean(column).drop_null()
        if not len(present):
            return None
        return "numeric" if is_number(present[0]) else "categorical"

    def numbers(self, name: str, column: pa.ChunkedArray, first_row: int) -> pa.ChunkedArray:
        """As float64, null where missing."""
        numbers = read_numbers(column)
        if numbers is None:
            text = clean(column)
            bad = next(index for index, value in enumerate(text) if not is_number(value))
            raise DataError(
                f"{self.path}: row {first_row + bad}, column {name!r}: {text[bad].as_py()!r} is "
                f"not a number. Mend it, or take the column for categories: --categorical {name}"
            )
        return numbers

    def text(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Without spaces around it, null where missing."""
        return clean(column)

    def _first_row(self) -> tuple[int, list[str]]:
        """How many empty lines the file starts with, and the row after them."""
        with open_bytes(self.path) as file:
            start = file.read(2**20)
        text = start.decode("utf-8-sig", errors="replace")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter)
        return next((count, row) for count, row in enumerate(rows) if row)

    def _row(self, arrows_number):
        """Arrow counts from the first line on, but not empty lines between rows."""
        return arrows_number - self.empty_lines - self.has_header

    def _why(self, ragged, error):
        if ragged:
            row = ragged[0]
            number = "" if row.number is None else f"row {self._row(row.number)}: "
            return (
                f"{number}{row.actual_columns} fields where {row.expected_columns} are expected. "
                "Mend the row, or say what is between fields: --delimiter."
            )
        message = str(error).splitlines()[0]
        if found := ARROW_PLACE.match(message):
            column, row, what = found.groups()
            return f"row {self._row(int(row))}, column {self.columns[int(column)]!r}: {what}"
        return message


def _looks_like_a_header(first_row):
    """No field of a header is a number."""
    fields = clean(pa.chunked_array([pa.array(first_row, pa.string())]))
    return not any(is_number(field) for field in fields.drop_null())
