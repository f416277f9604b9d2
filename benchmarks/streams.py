"""Real data: scikit-learn's own, and LIBSVM files from a folder."""

import pathlib
from typing import NamedTuple

import numpy as np
from sklearn import datasets


class Stream(NamedTuple):
    """Rows in their stored order and raw units, a constant one appended; labels are 0 or 1."""

    features: np.ndarray
    labels: np.ndarray


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images of 64 pixels in [0, 1], and the digit each shows."""
    images, labels = datasets.load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int32)


def available(folder: pathlib.Path | None) -> list[str]:
    """The names that ``load`` knows: two streams of scikit-learn, and the folder's files."""
    files = [] if folder is None else sorted(folder.glob("*.libsvm"))
    return ["breast_cancer", "digits_parity", *(path.stem for path in files)]


def load(name: str, folder: pathlib.Path | None, rows: int | None = None) -> Stream:
    """A stream, or its first ``rows`` rows."""
    if name == "breast_cancer":
        features, labels = datasets.load_breast_cancer(return_X_y=True)
    elif name == "digits_parity":
        features, labels = datasets.load_digits(return_X_y=True)
        labels = labels % 2
    else:
        assert folder is not None
        sparse, labels = datasets.load_svmlight_file(str(folder / f"{name}.libsvm"))
        features = sparse[:rows].toarray()
    features, labels = features[:rows], labels[:rows] == labels.max()
    ones = np.ones((len(features), 1))
    return Stream(np.hstack([features, ones]).astype(np.float32), labels.astype(np.float32))
