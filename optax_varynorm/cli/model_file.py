"""A model in one file: an archive of the learner's state, and a header.

The header has the format's name and version, the schema of the table, the estimator's settings, the
loss curve, and which rows of which file were learned from.
"""

import hashlib
import json
import pathlib
from typing import Any, NamedTuple

from optax_varynorm.cli import archive
from optax_varynorm.cli.header import FORMAT, VERSION, check, version_of
from optax_varynorm.cli.kinds import UnfitError
from optax_varynorm.cli.loss_curve import LossCurve
from optax_varynorm.estimators import VaryNormClassifier, VaryNormRegressor, saving
from optax_varynorm.tables import DataError, Schema

BYTES_OF_FINGERPRINT = 2**20
# The loss curve and the rest need less than the other half of the longest header.
MOST_BYTES_OF_SCHEMA = archive.MOST_BYTES_OF_HEADER // 2


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


def require_moderate(schema: Schema, path: pathlib.Path) -> None:
    """A schema that a model file has room for: found out before an hour of learning."""
    if len(json.dumps(schema.to_json(), indent=1)) > MOST_BYTES_OF_SCHEMA:
        raise DataError(
            f"{path}: the names of all columns and categories are longer than "
            f"{MOST_BYTES_OF_SCHEMA >> 20} MB. Leave some out: --drop COL"
        )


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
    try:
        archive.write(path, header, arrays)
    except OSError as error:
        kept = " The model that was there is as it was." if path.exists() else ""
        raise DataError(
            f"{path}: the model cannot be saved: {error.strerror or error}.{kept} "
            "Make room, or choose another place: --output"
        ) from error


def load(path: pathlib.Path) -> Model:
    """A model as it was saved; a ``DataError`` for anything else."""
    _require_file(path)
    try:
        with archive.opened(path) as stored:
            header = stored.header
            _require_version(path, version_of(header))
            check(header)
            estimator = header["estimator"]
            _require_declared(estimator, stored)
            arrays = stored.arrays()
    except UnfitError as error:
        raise DataError(f"{path}: not a model that `varynorm fit` has saved.") from error
    counts = header["label_counts"]
    return Model(
        saving.from_arrays(estimator, arrays),
        Schema.from_json(header["schema"]),
        Source(**header["source"]),
        LossCurve(**header["curve"]),
        header["wrong"],
        None if counts is None else tuple(counts),
    )


def is_model(path: pathlib.Path) -> bool:
    """Of this version, by its header."""
    try:
        with archive.opened(path) as stored:
            return version_of(stored.header) == VERSION
    except (UnfitError, OSError):
        return False


def _require_file(path):
    if not path.is_file():
        raise DataError(f"{path}: no such file.")


def _require_version(path, version):
    if type(version) is int and version != VERSION:
        raise DataError(
            f"{path}: a model of version {version}, and this package reads version {VERSION}. "
            "Install the package that wrote it, or fit again."
        )


def _require_declared(estimator: dict[str, Any], stored: archive.Archive) -> None:
    """The arrays are those of such a learner, by what they declare."""
    outputs = 1 if estimator["classes"] in (None, 2) else estimator["classes"]
    # Each output has a point, of four bytes a feature: no shape is computed beyond that.
    if outputs * estimator["features"] * 4 > stored.bytes_of_arrays:
        raise UnfitError("as many numbers as there are features")
    try:
        saving.require_fit(estimator, stored.declared())
    except ValueError as error:
        raise UnfitError(str(error)) from error
