"""What the header of a model file has to be: types, ranges, and agreement of its parts."""

from typing import Any

from optax_varynorm.cli.kinds import (
    Kind,
    UnfitError,
    by_field,
    flag,
    list_of,
    loss_sum,
    number,
    one_of,
    optional,
    record,
    require,
    text,
    whole,
)
from optax_varynorm.cli.loss_curve import MOST_BLOCKS
from optax_varynorm.estimators import regressor, stream
from optax_varynorm.estimators.classifier import SEPARATE_LOSSES
from optax_varynorm.tables.scanning import MOST_CLASSES

FORMAT = "optax_varynorm linear model"
VERSION = 1

_FINITE = number(-1.7e308, 1.7e308)
_POSITIVE = number(5e-324, 1.7e308)


def _estimator(kind: str, classes: Kind, **parameters: Kind) -> Kind:
    return record(
        kind=one_of(kind),
        parameters=record(
            learner=one_of(*stream.LEARNERS),
            epsilon=optional(number(1e-12, 1e12)),
            fit_intercept=flag,
            average=flag,
            shuffle=flag,
            random_state=optional(whole(0, 2**32 - 1)),
            **parameters,
        ),
        classes=classes,
        features=whole(1),
        dtype=one_of("float32"),
        rows=whole(1),
        loss_sum=loss_sum,
        weight_sum=_POSITIVE,
    )


_CLASSIFIER = _estimator(
    "classifier",
    whole(2, MOST_CLASSES),
    loss=one_of(*SEPARATE_LOSSES),
    multi_class=one_of("softmax", "ovr"),
)
_REGRESSOR = _estimator(
    "regressor",
    one_of(None),
    loss=one_of(*regressor.LOSSES),
    quantile=number(1e-300, 1 - 1e-16),
    delta=_POSITIVE,
)


def _column(value: Any) -> None:
    kinds: dict[str, Kind] = {"name": text, "has_missing": flag}
    if isinstance(value, dict) and "categories" in value:
        kinds["categories"] = list_of(text)
    record(**kinds)(value)


def _labels(value: Any) -> None:
    is_text = isinstance(value, list) and isinstance(next(iter(value), None), str)
    list_of(text if is_text else _FINITE, fewest=2, most=MOST_CLASSES)(value)


_HEADER = record(
    format=one_of(FORMAT),
    version=one_of(VERSION),
    estimator=by_field("kind", {"classifier": _CLASSIFIER, "regressor": _REGRESSOR}),
    schema=record(
        target=record(name=text, labels=optional(_labels)),
        columns=list_of(_column),
        sparse_width=optional(whole(1)),
    ),
    source=record(name=text, fingerprint=text, rows=whole(1), learned=whole(0)),
    curve=record(
        rows_a_block=whole(1), rows=whole(1), sums=list_of(loss_sum, fewest=1, most=MOST_BLOCKS)
    ),
    wrong=whole(0),
    label_counts=optional(list_of(whole(0))),
)


def version_of(header: Any) -> Any:
    """Of a header in this format, in whatever version."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UnfitError(f"format {FORMAT!r}")
    return header.get("version")


def check(header: Any) -> None:
    """Raise ``UnfitError`` for everything that ``varynorm fit`` would not have written."""
    _HEADER(header)
    estimator, schema, curve = header["estimator"], header["schema"], header["curve"]
    labels, names = schema["target"]["labels"], [column["name"] for column in schema["columns"]]
    require(estimator["classes"] == (None if labels is None else len(labels)), "one label a class")
    _require_different([*names, schema["target"]["name"]])
    if labels is not None:
        _require_different(labels)
        require(labels == sorted(labels), "labels in order")
    for column in schema["columns"]:
        _require_different(column.get("categories", ()))
    require(schema["sparse_width"] is None or not names, "columns, or indices of a LIBSVM file")
    require(estimator["features"] == _width(schema), "as many features as the columns have")
    require(curve["rows"] == estimator["rows"], "a loss for every row")
    require(len(curve["sums"]) == -(-curve["rows"] // curve["rows_a_block"]), "a sum a block")
    require(header["wrong"] <= estimator["rows"], "no more predictions than rows")
    source, counts = header["source"], header["label_counts"]
    require(source["learned"] <= source["rows"], "no more rows than the file has")
    require((None if counts is None else len(counts)) == estimator["classes"], "a count a class")


def _width(schema) -> int:
    if schema["sparse_width"] is not None:
        return schema["sparse_width"]
    columns = schema["columns"]
    return sum(len(c.get("categories", "1")) + c["has_missing"] for c in columns)


def _require_different(values) -> None:
    require(len(set(values)) == len(values), "names that differ")
