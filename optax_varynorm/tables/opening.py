"""Which reader a file needs: looked up in its first bytes."""

import pathlib
import re
from typing import NamedTuple

from optax_varynorm.tables.csv_table import CsvTable
from optax_varynorm.tables.errors import DataError
from optax_varynorm.tables.files import COMPRESSED, UNREADABLE, open_bytes
from optax_varynorm.tables.libsvm_table import LibsvmTable
from optax_varynorm.tables.parquet_table import ParquetTable

LIBSVM_ROW = re.compile(rb"[-+.\deE]+(\s+\d+:\S+)+\s*(#.*)?")
LIBSVM_SUFFIXES = {".libsvm", ".svm", ".svmlight"}


class ReadSettings(NamedTuple):
    """How to read a CSV file.

    Attributes:
      header: whether the first line has names; ``None`` to guess.
      delimiter: between fields; ``None`` for a tab in ``.tsv`` files and a comma elsewhere.
    """

    header: bool | None = None
    delimiter: str | None = None


AS_FOUND = ReadSettings()


def open_table(
    path: pathlib.Path, settings: ReadSettings = AS_FOUND
) -> CsvTable | ParquetTable | LibsvmTable:
    """A table of the kind that the file's content shows, or its suffix for LIBSVM."""
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    start = _start(path)
    if not start.strip():
        raise DataError(f"{path}: the file is empty.")
    if start.startswith(b"PAR1"):
        return ParquetTable(path)
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    first_line = start.splitlines()[0].strip()
    if LIBSVM_SUFFIXES & {*suffixes[-1:]} or LIBSVM_ROW.fullmatch(first_line):
        return LibsvmTable(path)
    delimiter = settings.delimiter or ("\t" if suffixes[-1:] == [".tsv"] else ",")
    return CsvTable(path, settings.header, delimiter)


def _start(path):
    """The first bytes, enough for a long line."""
    try:
        with open_bytes(path) as file:
            return file.read(2**20).lstrip(b"\n")
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
