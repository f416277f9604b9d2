"""Files as bytes, compressed or not."""

import bz2
import gzip
import pathlib
import zlib
from typing import BinaryIO, cast

COMPRESSED = (".gz", ".bz2")
# What reading a damaged file may raise.
UNREADABLE = (OSError, EOFError, zlib.error)


def open_bytes(path: pathlib.Path) -> BinaryIO:
    """Decompressed by its suffix."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    if path.suffix == ".bz2":
        return cast(BinaryIO, bz2.open(path))
    return open(path, "rb")
