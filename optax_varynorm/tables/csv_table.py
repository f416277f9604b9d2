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
from optax_varynorm.tables.errors import DataError, require_different
from optax_varynorm.tables.files import open_bytes

ARROW_PLACE = re.compile(r"In CSV column #(\d+): Row #(\d+): (.*)")
ARROW_RAGGED = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
# Arrow reads a file in blocks of a megabyte, and a row has to fit in one.
ARROW_LONG = "straddling object"


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
        require_different(path, self.columns)

    def batches(self, size: int, skip: int = 0) -> Iterator[pa.Table]:
        """All columns as text, in tables of ``size`` rows."""
        try:
            reader = pyarrow.csv.open_csv(
                str(self.path),
                pyarrow.csv.ReadOptions(
                    column_names=self.columns,
                    skip_rows=self.empty_lines,
                    skip_rows_after_names=int(self.has_header),
                    use_threads=False,  # only then are ragged rows numbered
                ),
                pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(self.columns, pa.string()), strings_can_be_null=False
                ),
            )
            with reader:
                yield from batches.of_size(reader, size, skip)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: {self._why(error)}") from error

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
        try:
            found = next(((count, row) for count, row in enumerate(rows) if row), None)
        except csv.Error as error:
            raise DataError(
                f"{self.path}: the first line is no row of a table ({error}). "
                "Say what is between fields: --delimiter"
            ) from error
        if found is None:
            raise DataError(f"{self.path}: the file is empty.")
        return found

    def _row(self, arrows_number):
        """Arrow counts from the first line on, but not empty lines between rows."""
        return arrows_number - self.empty_lines - self.has_header

    def _why(self, error):
        message = str(error).splitlines()[0]
        if ragged := ARROW_RAGGED.match(message):
            row, expected, actual = ragged.groups()
            number = "" if row is None else f"row {self._row(int(row))}: "
            return (
                f"{number}{actual} fields where {expected} are expected. "
                "Mend the row, or say what is between fields: --delimiter."
            )
        if ARROW_LONG in message:
            return (
                "a row is longer than a megabyte. Mend it; a quotation mark that is opened and "
                "never closed makes one row of many."
            )
        if found := ARROW_PLACE.match(message):
            column, row, what = found.groups()
            return f"row {self._row(int(row))}, column {self.columns[int(column)]!r}: {what}"
        return message


def _looks_like_a_header(first_row):
    """No field of a header is a number."""
    fields = clean(pa.chunked_array([pa.array(first_row, pa.string())]))
    return not any(is_number(field) for field in fields.drop_null())
