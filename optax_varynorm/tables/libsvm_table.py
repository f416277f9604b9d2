"""LIBSVM files, ``label index:value ...`` a row, a batch of rows at a time.

Indices are features as they stand, from 0 or from 1: a feature that no row has changes nothing.
"""

import io
import itertools
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse
from sklearn.datasets import load_svmlight_file

from optax_varynorm.tables.errors import DataError
from optax_varynorm.tables.files import UNREADABLE, open_bytes

LABEL = "label"


class SparseRows(NamedTuple):
    """As wide as the largest index in them needs."""

    features: scipy.sparse.csr_matrix
    labels: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.labels)


class LibsvmTable:
    """Attributes:
    columns: the label's only; features have indices.
    total_rows: unknown before the last row.
    """

    total_rows: int | None = None
    has_header = False
    is_sparse = True

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.columns = [LABEL]

    def batches(self, size: int, skip: int = 0) -> Iterator[SparseRows]:
        """Tables of ``size`` rows, without the first ``skip``."""
        with open_bytes(self.path) as file:
            rows = itertools.islice(self._lines(file), skip, None)
            for first in itertools.count(skip + 1, size):
                lines = [*itertools.islice(rows, size)]
                if not lines:
                    return
                yield self._parse(lines, first)

    def _lines(self, file):
        """Those that are rows."""
        try:
            yield from (line for line in file if line.split(b"#")[0].strip())
        except UNREADABLE as error:
            raise DataError(f"{self.path}: cannot be read: {error}") from error

    def _parse(self, lines, first_row):
        try:
            return _read(lines)
        except (ValueError, OverflowError):
            for row, line in enumerate(lines, first_row):
                try:
                    _read([line])
                except (ValueError, OverflowError) as error:
                    raise DataError(
                        f"{self.path}: row {row} is not `label index:value ...` with indices that "
                        f"increase: {str(error).splitlines()[0]}"
                    ) from error
            raise


def _read(lines):
    features, labels = load_svmlight_file(io.BytesIO(b"".join(lines)), zero_based=True)
    return SparseRows(features, labels)
