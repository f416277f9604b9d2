"""A header in JSON and named arrays in one ZIP file, as NumPy has them. No pickle.

What is read is bounded before it is read: a file of 3 MB may claim to hold 8 GB. What is written
takes the place of what was there when it is complete, and not before.
"""

import contextlib
import io
import json
import math
import os
import pathlib
import re
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from optax_varynorm.cli.kinds import UnfitError, require

HEADER = "header.json"
# A header in memory takes up to forty times its size.
MOST_BYTES_OF_HEADER = 2**23
# What the arrays of any file may have, and how many times the file's own size those of others.
# Large arrays are written without compression, so that every file that is written can be read.
BYTES_FOR_ALL = 2**27
MOST_TIMES = 20

NPY_START = b"\x93NUMPY\x01\x00"
NPY_HEADER = re.compile(
    rb"\{'descr': '([<|][bifu]\d)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n"
)
LONGEST_NPY_HEADER = 512
IS_ENCRYPTED = 1
# What a ZIP file may raise that something has changed.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    RuntimeError,
    LookupError,
    ValueError,
    ArithmeticError,
    MemoryError,
)


class Declared(NamedTuple):
    """An array that was not read yet."""

    dtype: np.dtype
    shape: tuple[int, ...]


class Archive:
    """Attributes:
    header: whatever is in the JSON.
    bytes_of_arrays: that the file says they have.
    """

    def __init__(self, file):
        with _damage_is_unfit():
            self._zip = zipfile.ZipFile(file)
            entries = self._zip.infolist()
            self._entries = {entry.filename: entry for entry in entries}
            require(len(entries) == len(self._entries), "one entry a name")
            for entry in entries:
                require(not entry.flag_bits & IS_ENCRYPTED, "entries without a password")
                known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                require(entry.compress_type in known, "entries that are stored or deflated")
            header = self._entries.pop(HEADER)
            require(header.file_size <= MOST_BYTES_OF_HEADER, "a short header")
            self.bytes_of_arrays = sum(entry.file_size for entry in self._entries.values())
            most = max(BYTES_FOR_ALL, MOST_TIMES * os.fstat(file.fileno()).st_size)
            require(self.bytes_of_arrays <= most, "arrays in proportion to the file")
            self.header: Any = json.loads(self._zip.read(header))

    def declared(self) -> dict[str, Declared]:
        """Dtypes and shapes of the arrays by their names; none of their numbers is read."""
        with _damage_is_unfit():
            found = {}
            for name, entry in self._entries.items():
                require(name.endswith(".npy"), "arrays")
                with self._zip.open(entry) as file:
                    found[name.removesuffix(".npy")], header_size = _read_npy_header(file)
                array = found[name.removesuffix(".npy")]
                size = header_size + math.prod(array.shape) * array.dtype.itemsize
                require(entry.file_size == size, "arrays of the size that they declare")
            return found

    def arrays(self) -> dict[str, np.ndarray]:
        """All of them; look at what is declared before."""
        read = {}
        for name, declared in self.declared().items():
            with _damage_is_unfit(), self._zip.open(f"{name}.npy") as file:
                _read_npy_header(file)
                numbers = np.frombuffer(file.read(), declared.dtype)
                read[name] = numbers.reshape(declared.shape)
        return read


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[Archive]:
    """Raises ``UnfitError`` if it is no such file, and ``OSError`` if it cannot be opened."""
    with open(path, "rb") as file:
        yield Archive(file)


def write(path: pathlib.Path, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """All or nothing; two processes that write one file do not meet, and the last one's stays."""
    text = json.dumps(header, indent=1)
    is_large = sum(array.nbytes for array in arrays.values()) > BYTES_FOR_ALL // 2
    compression = zipfile.ZIP_STORED if is_large else zipfile.ZIP_DEFLATED
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb") as file:
            with zipfile.ZipFile(file, "w", compression) as archive:
                archive.writestr(HEADER, text, zipfile.ZIP_DEFLATED)
                for name, array in arrays.items():
                    content = io.BytesIO()
                    np.save(content, array, allow_pickle=False)
                    archive.writestr(f"{name}.npy", content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _read_npy_header(file) -> tuple[Declared, int]:
    """What it declares, and how long it is with its own start."""
    start = file.read(len(NPY_START) + 2)
    length = int.from_bytes(start[len(NPY_START) :], "little")
    require(start.startswith(NPY_START) and length <= LONGEST_NPY_HEADER, "arrays of NumPy")
    found = NPY_HEADER.fullmatch(file.read(length))
    if found is None:
        raise UnfitError("an array's dtype and shape")
    dtype, shape = (group.decode() for group in found.groups())
    sizes = tuple(int(size) for size in shape.split(",") if size.strip())
    return Declared(np.dtype(dtype), sizes), len(start) + length


@contextlib.contextmanager
def _damage_is_unfit():
    try:
        yield
    except DAMAGED as error:
        raise UnfitError(str(error)) from error
