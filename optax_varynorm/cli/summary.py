"""What ``fit`` says of a model, in words and for machines."""

import pathlib
from typing import Any

import numpy as np

from optax_varynorm.cli.learning import Learned
from optax_varynorm.cli.model_file import Model
from optax_varynorm.estimators.classifier import SEPARATE_LOSSES
from optax_varynorm.tables.errors import quoted
from optax_varynorm.tables.schema import Categorical, label_text


def task(model: Model) -> str:
    """The table, and the loss that was chosen for its target."""
    schema, source = model.schema, model.source
    categorical = sum(isinstance(column, Categorical) for column in schema.columns)
    missing = sum(column.has_missing for column in schema.columns)
    columns = f"{len(schema.columns)} columns"
    columns += f", {categorical} categorical" if categorical else ""
    columns += f", {missing} with missing values" if missing else ""
    table = "" if schema.sparse_width is not None else f" ({columns})"
    labels = schema.target.labels
    what = "a number" if labels is None else f"classes {quoted(map(label_text, labels))}"
    going_on = f", from row {source.learned + 1:,} on" if source.learned else ""
    return (
        f"{source.name}: {source.rows:,} rows{going_on}, {schema.width:,} features{table}\n"
        f"target {schema.target.name!r}: {what}; {model.estimator.loss} loss (another one: --loss)"
    )


def result(learned: Learned, path: pathlib.Path) -> dict[str, Any]:
    """Everything that ``--json`` prints."""
    model = learned.model
    estimator = model.estimator
    found = {
        "model": str(path),
        "target": model.schema.target.name,
        "loss": estimator.loss,
        "features": model.schema.width,
        "rows": estimator.t_,
        "rows_of_file": model.source.rows,
        "finished": model.source.learned == model.source.rows,
        "progressive_loss": estimator.progressive_loss_,
        "clipped_rounds": estimator.clipped_rounds_,
        "seconds": learned.seconds,
        "rows_per_second": learned.rows_per_second,
    }
    if estimator.loss in SEPARATE_LOSSES:
        found["progressive_error_rate"] = model.wrong / estimator.t_
    if estimator.loss == "logistic" and sum(model.label_counts or ()) == estimator.t_:
        shares = np.array(model.label_counts) / estimator.t_
        found["best_constant_loss"] = float(-np.sum(shares * np.log(shares)))
    return found


def text(found: dict[str, Any]) -> str:
    """The result in a few lines."""
    line = f"progressive {found['loss']} loss {found['progressive_loss']:.4g}"
    if "best_constant_loss" in found:
        line += f" (the best constant in hindsight: {found['best_constant_loss']:.4g})"
    if "progressive_error_rate" in found:
        line += f", {found['progressive_error_rate']:.2%} wrong"
    if found["clipped_rounds"]:
        line += f"; {found['clipped_rounds']:,} gradients were longer than allowed and were cut"
    amount = f"{found['rows']:,} rows" + ("" if found["finished"] else " so far (interrupted)")
    speed = found["rows_per_second"]
    rate = "" if speed is None else f", {speed:,.0f} a second once compiled"
    return (
        f"{line}\n"
        f"learned from {amount} in {found['seconds']:.3g} seconds{rate}\n"
        f"saved {found['model']}; to use it: varynorm predict {found['model']} DATA"
    )
