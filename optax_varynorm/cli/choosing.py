"""Which loss a target asks for, and the estimator that has it."""

from optax_varynorm.estimators import VaryNormClassifier, VaryNormRegressor
from optax_varynorm.estimators.classifier import SEPARATE_LOSSES
from optax_varynorm.estimators.regressor import LOSSES as LOSSES_OF_NUMBERS
from optax_varynorm.tables import DataError, Schema
from optax_varynorm.tables.schema import Target

LOSSES = (*SEPARATE_LOSSES, *LOSSES_OF_NUMBERS)
# Whole numbers of so few values are classes, unless a loss says otherwise.
MOST_WHOLE_NUMBERS = 20


def guess_loss(target: Target) -> str:
    """Logistic for two values, for text, and for few whole numbers; else absolute."""
    labels = target.labels
    if labels is None:
        return "absolute"
    if target.is_text or len(labels) == 2:
        return "logistic"
    few = len(labels) <= MOST_WHOLE_NUMBERS
    return "logistic" if few and all(float(label).is_integer() for label in labels) else "absolute"


def reason(target: Target, path) -> str | None:
    """Why numbers are taken for classes, and what to say if they are none."""
    if target.labels is None or target.is_text or guess_loss(target) == "absolute":
        return None
    return (
        f"{path}: {target.name!r} has {len(target.labels)} different numbers, so few that they "
        "are taken for classes. To predict a number: --loss absolute"
    )


def for_loss(schema: Schema, loss: str, path) -> Schema:
    """The schema with labels if the loss is one of classes, else without."""
    target = schema.target
    if loss in SEPARATE_LOSSES:
        if target.labels is None:
            raise DataError(
                f"{path}: {target.name!r} has too many different numbers for classes; "
                "--loss absolute, huber, quantile or squared learn from numbers."
            )
        if len(target.labels) == 1:
            raise DataError(
                f"{path}: {target.name!r} is {target.labels[0]!r} in every row: "
                "there is nothing to tell apart."
            )
        return schema
    if target.is_text:
        raise DataError(
            f"{path}: {target.name!r} is text, and --loss {loss} needs numbers; "
            "--loss logistic or hinge learn from classes."
        )
    return schema._replace(target=target._replace(labels=None))


def make_estimator(loss: str, quantile: float, delta: float, **settings):
    """Not fitted yet."""
    if loss in SEPARATE_LOSSES:
        return VaryNormClassifier(loss=loss, **settings)
    return VaryNormRegressor(loss=loss, quantile=quantile, delta=delta, **settings)
