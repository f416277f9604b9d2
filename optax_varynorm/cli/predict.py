"""``varynorm predict``: what a model says of the rows of a file."""

import contextlib
import csv
import json
import pathlib
import sys
from typing import Annotated

import numpy as np
import typer

from optax_varynorm.cli import learning, model_file, options, progress
from optax_varynorm.cli.app import app, notes
from optax_varynorm.tables import encoding
from optax_varynorm.tables.errors import quoted
from optax_varynorm.tables.schema import label_text


@app.command()
def predict(
    model_path: Annotated[
        pathlib.Path,
        typer.Argument(metavar="MODEL", help="A file that `fit` saved.", show_default=False),
    ],
    data: options.Data,
    output: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--output", "-o", help="Write here, not to the standard output.", show_default=False
        ),
    ] = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON a row in place of CSV.")
    ] = False,
) -> None:
    """Predict every row of a file, as CSV: the prediction, and the probabilities if there are any.

    Columns are found by name, in any order; the target need not be there. A category that the
    model has never seen has no feature: the prediction is made from the other columns. So has a
    missing number in a column that had none, which counts as 0. How many there were is said at
    the end.

    [bold]Examples[/bold]

    [cyan]varynorm predict houses.varynorm new_houses.csv > prices.csv[/cyan]

    [cyan]varynorm predict a9a.varynorm a9a.t --output predictions.csv[/cyan]
    """
    model = model_file.load(model_path)
    table = options.read(data, header, delimiter)
    encoding.require_columns(model.schema, table, with_target=False)
    if output is not None:
        options.require_folder("--output", output)
    known = {model.schema.target.name, *(column.name for column in model.schema.columns)}
    if ignored := [name for name in table.columns if name not in known]:
        notes().print(
            f"{data}: columns that the model does not know: {quoted(ignored)}", markup=False
        )
    surprises = encoding.Surprises()
    with contextlib.ExitStack() as stack:
        file = sys.stdout if output is None else stack.enter_context(open(output, "w", newline=""))
        show = stack.enter_context(progress.bar("predicting", table.total_rows))
        writer = csv.writer(file, lineterminator="\n")
        names = _names(model)
        if not as_json:
            writer.writerow(names)
        rows = 0
        for batch in table.batches(learning.rows_a_batch(model.schema.width)):
            features = encoding.features(model.schema, table, batch, rows + 1, surprises)
            answers = zip(*_answers(model, features), strict=True)
            if as_json:
                lines = (json.dumps(dict(zip(names, a, strict=True))) for a in answers)
                file.writelines(f"{line}\n" for line in lines)
            else:
                writer.writerows(answers)
            rows += batch.num_rows
            show(rows)
    for line in surprises.lines():
        notes().print(f"{data}: {line}", markup=False)


def _names(model) -> list[str]:
    """Of the columns of the answer."""
    labels = model.schema.target.labels
    if labels is None or model.estimator.loss != "logistic":
        return ["prediction"]
    return ["prediction", *(f"probability of {label_text(label)}" for label in labels)]


def _answers(model, features) -> list[list]:
    """A list for each of those columns."""
    predicted = model.estimator.predict(features)
    labels = model.schema.target.labels
    if labels is None:
        return [predicted.tolist()]
    written = np.array([label_text(label) for label in labels])[predicted].tolist()
    if model.estimator.loss != "logistic":
        return [written]
    return [written, *model.estimator.predict_proba(features).T.tolist()]
