"""Which reader a file needs: looked up in its first bytes."""

import codecs
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


WANTED = "A table is CSV, parquet or LIBSVM."
# How files begin that are often taken for tables.
BEGINNINGS = {
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet",
    b"\x1f\x8b": "compressed by gzip: call it NAME.csv.gz",
    b"BZh": "compressed by bzip2: call it NAME.csv.bz2",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
}
# Control characters that no line of text has. Others are between the fields of some files.
NOT_OF_TEXT = re.compile(rb"[\x00\x03-\x08\x0e-\x1a]")


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
    if why := why_not_text(start):
        raise DataError(f"{path}: not UTF-8 text, but {why}. {WANTED}")
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
    first_line = start.splitlines()[0].strip()
    if LIBSVM_SUFFIXES & {*suffixes[-1:]} or LIBSVM_ROW.fullmatch(first_line):
        return LibsvmTable(path)
    delimiter = settings.delimiter or ("\t" if suffixes[-1:] == [".tsv"] else ",")
    return CsvTable(path, settings.header, delimiter)


def why_not_text(start: bytes) -> str | None:
    """What a file is by its beginning, if it is not text."""
    line = start.splitlines()[0]
    try:
        # The line may be cut off inside a character.
        codecs.getincrementaldecoder("utf-8")().decode(line)
        is_text = not NOT_OF_TEXT.search(line) and b"\x00" not in start
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return None
    known = (what for beginning, what in BEGINNINGS.items() if start.startswith(beginning))
    return next(known, "binary, or in another encoding")


def _start(path):
    """The first bytes, enough for a long line."""
    try:
        with open_bytes(path) as file:
            return file.read(2**20).lstrip(b"\n")
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
