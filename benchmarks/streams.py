"""Real data: what scikit-learn and River ship, and LIBSVM files from a folder."""

import importlib.util
import pathlib
from collections.abc import Callable

import numpy as np
from sklearn import datasets

from optax_varynorm.racing.linear import Stream


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images of 64 pixels in [0, 1], and the digit each shows."""
    images, labels = datasets.load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int32)


def from_sklearn(name: str, is_positive: Callable) -> Callable:
    def read():
        features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
        return features, is_positive(labels)

    return read


def from_river(name: str, is_positive: Callable) -> Callable:
    def read():
        import river.datasets

        rows, labels = zip(*getattr(river.datasets, name)(), strict=True)
        features = np.array([[float(value) for value in row.values()] for row in rows])
        return features, is_positive(np.array(labels))

    return read


SKLEARN = {
    "breast_cancer": from_sklearn("breast_cancer", lambda label: label == 1),
    "digits_parity": from_sklearn("digits", lambda digit: digit % 2 == 1),
    "wine": from_sklearn("wine", lambda cultivar: cultivar == 1),
    "iris": from_sklearn("iris", lambda species: species == 1),
}
RIVER = {
    "phishing": from_river("Phishing", lambda label: label),
    "bananas": from_river("Bananas", lambda label: label),
    "image_segments": from_river("ImageSegments", lambda material: material == "window"),
    "shuttle": from_river("Shuttle", lambda anomaly: anomaly == 1),
}
SHIPPED = SKLEARN | (RIVER if importlib.util.find_spec("river") else {})


def read_libsvm(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    features, labels = datasets.load_svmlight_file(str(path))
    return features.toarray(), labels == labels.max()


def available(folder: pathlib.Path | None) -> list[str]:
    """The names that ``load`` knows: the shipped streams, and the folder's files."""
    files = [] if folder is None else sorted(folder.glob("*.libsvm"))
    return [*SHIPPED, *(path.stem for path in files)]


def load(
    name: str, folder: pathlib.Path | None, rows: int | None = None, seed: int | None = 0
) -> Stream:
    """A stream by its name, as ``arrange`` makes it of the raw data."""
    if name in SHIPPED:
        features, is_positive = SHIPPED[name]()
    else:
        assert folder is not None
        features, is_positive = read_libsvm(folder / f"{name}.libsvm")
    return arrange(features, is_positive, rows, seed)


def arrange(
    features: np.ndarray, is_positive: np.ndarray, rows: int | None = None, seed: int | None = 0
) -> Stream:
    """Shuffled by ``seed`` or in the stored order if ``None``; the first ``rows`` of it.

    The stored order of some is sorted by label, where always repeating the last label wins.
    """
    count = len(is_positive)
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    features = np.hstack([features, np.ones((count, 1))])[order[:rows]]
    return Stream(features.astype(np.float32), is_positive[order[:rows]].astype(np.float32))
