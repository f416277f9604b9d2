"""A model in one file: a NumPy archive of the learner's state, and a header in JSON. No pickle.

The header has the format's name and version, the schema of the table, the estimator's settings, the
loss curve, and which rows of which file were learned from.
"""

import hashlib
import io
import json
import os
import pathlib
import zipfile
from typing import Any, NamedTuple

import numpy as np

from optax_varynorm.cli.loss_curve import LossCurve
from optax_varynorm.estimators import VaryNormClassifier, VaryNormRegressor, saving
from optax_varynorm.tables import DataError, Schema

FORMAT = "optax_varynorm linear model"
VERSION = 1
HEADER = "header.json"
BYTES_OF_FINGERPRINT = 2**20


class Source(NamedTuple):
    """The file that was learned from.

    Attributes:
      name: for messages.
      fingerprint: of its size and its beginning.
      rows: in the file.
      learned: of them, from the first on.
    """

    name: str
    fingerprint: str
    rows: int
    learned: int


class Model(NamedTuple):
    """Attributes:
    wrong: how many classes were predicted wrongly before they were seen.
    label_counts: in the first file, ``None`` for quantities.
    """

    estimator: VaryNormClassifier | VaryNormRegressor
    schema: Schema
    source: Source
    curve: LossCurve
    wrong: int
    label_counts: tuple[int, ...] | None


def fingerprint(path: pathlib.Path) -> str:
    """Changes with the file's size and its first megabyte."""
    with open(path, "rb") as file:
        start = file.read(BYTES_OF_FINGERPRINT)
    return hashlib.sha256(f"{path.stat().st_size} ".encode() + start).hexdigest()


def save(path: pathlib.Path, model: Model) -> None:
    """All or nothing: the file of this name changes when the new one is complete."""
    settings, arrays = saving.to_arrays(model.estimator)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "estimator": settings,
        "schema": model.schema.to_json(),
        "source": model.source._asdict(),
        "curve": model.curve.to_json(),
        "wrong": model.wrong,
        "label_counts": model.label_counts,
    }
    partial = path.with_name(f"{path.name}.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(HEADER, json.dumps(header, indent=1))
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", content.getvalue())
    os.replace(partial, path)


def load(path: pathlib.Path) -> Model:
    """A model as it was saved; a ``DataError`` for anything else."""
    header, arrays = _read(path)
    try:
        estimator = saving.from_arrays(header["estimator"], arrays)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    counts = header["label_counts"]
    return Model(
        estimator,
        Schema.from_json(header["schema"]),
        Source(**header["source"]),
        LossCurve(**header["curve"]),
        header["wrong"],
        None if counts is None else tuple(counts),
    )


def is_model(path: pathlib.Path) -> bool:
    try:
        _read(path)
    except DataError:
        return False
    return True


def _read(path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read(HEADER))
            arrays = {
                name.removesuffix(".npy"): np.load(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in archive.namelist()
                if name != HEADER
            }
        found = (header["format"], header["version"])
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a model that `varynorm fit` has saved.") from error
    if found[0] != FORMAT:
        raise DataError(f"{path}: not a model that `varynorm fit` has saved.")
    if found[1] != VERSION:
        raise DataError(
            f"{path}: a model of version {found[1]}, and this package reads version {VERSION}. "
            "Install the package that wrote it, or fit again."
        )
    return header, arrays
