"""Real data: scikit-learn's own, and LIBSVM files from a folder."""

import pathlib
from typing import NamedTuple

import numpy as np
from sklearn import datasets


class Stream(NamedTuple):
    """Rows in raw units, a constant one appended; labels are 0 or 1."""

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


def load(
    name: str, folder: pathlib.Path | None, rows: int | None = None, seed: int | None = 0
) -> Stream:
    """A stream, shuffled by ``seed`` or in its stored order if ``None``; the first ``rows`` of it.

    The stored order of some is sorted by label, where always repeating the last label wins.
    """
    if name == "breast_cancer":
        features, labels = datasets.load_breast_cancer(return_X_y=True)
    elif name == "digits_parity":
        features, labels = datasets.load_digits(return_X_y=True)
        labels = labels % 2
    else:
        assert folder is not None
        features, labels = datasets.load_svmlight_file(str(folder / f"{name}.libsvm"))
        features = features.toarray()
    count = len(labels)
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    features = np.hstack([features, np.ones((count, 1))])[order[:rows]]
    labels = (labels == labels.max())[order[:rows]]
    return Stream(features.astype(np.float32), labels.astype(np.float32))
