"""``varynorm fit``: a linear model from one pass over a file."""

import json
import pathlib
import shlex
import sys
from typing import Annotated, Literal

import typer

from optax_varynorm.cli import (
    choosing,
    interrupting,
    learning,
    model_file,
    options,
    progress,
    report_page,
    summary,
)
from optax_varynorm.cli.app import INTERRUPTED, app, notes
from optax_varynorm.cli.loss_curve import LossCurve
from optax_varynorm.estimators.linear_model import require_number_between
from optax_varynorm.tables import DataError, encoding, scan

SUFFIX = ".varynorm"


@app.command()
def fit(
    data: options.Data,
    target: options.TargetColumn = None,
    output: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where to save the model. Left out: DATA's name and .varynorm, in this folder.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        pathlib.Path | None, typer.Option(help="Write a page about the run, such as out.html.")
    ] = None,
    loss: Annotated[
        Literal["logistic", "hinge", "absolute", "quantile", "huber", "squared"] | None,
        typer.Option(
            help="Left out: logistic if the target has two values, is text, or has up to 20 "
            "different whole numbers; else absolute.",
            show_default=False,
        ),
    ] = None,
    quantile: Annotated[float, typer.Option(help="The level of --loss quantile.")] = 0.5,
    delta: Annotated[float, typer.Option(help="Where --loss huber stops being quadratic.")] = 1.0,
    learner: Annotated[
        Literal["default", "diagonal", "full_matrix"],
        typer.Option(help="diagonal is the fastest: O(d) a row."),
    ] = "default",
    resume: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="MODEL",
            help="Go on with this model: where it stopped in DATA, or with DATA as more rows.",
            show_default=False,
        ),
    ] = None,
    categorical: options.Categorical = None,
    drop: options.Drop = None,
    most_categories: options.MostCategories = 1000,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    as_json: options.AsJson = False,
) -> None:
    """Learn a linear model from one pass over a file, with nothing to tune or to scale.

    Every row is predicted, then learned from, in the order of the file; the progressive loss is
    that of the predictions made before the answer was seen. Files larger than memory are fine: they
    are read twice, once for the columns and once to learn.

    A column is numeric if its first value is a number. Text becomes one feature a category. A
    missing value (empty, ?, NA, N/A, NaN, null, none) is 0 with an extra feature that says so, or
    a category of its own. Rows are counted from 1, after the header.

    Ctrl-C saves what was learned; --resume goes on, to the same result as without a break.

    [bold]Examples[/bold]

    [cyan]varynorm fit houses.csv --target price --report houses.html[/cyan]

    [cyan]varynorm fit a9a.libsvm -o a9a.varynorm[/cyan]

    [cyan]varynorm fit clicks.csv.gz --target clicked --categorical zip --learner diagonal[/cyan]
    """
    for name, value, high in (("--quantile", quantile, 1.0), ("--delta", delta, float("inf"))):
        try:
            require_number_between(name, value, 0, high)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    path = output or resume or pathlib.Path(data.name.split(".")[0] + SUFFIX)
    options.require_folder("--output", path)
    if report is not None:
        options.require_folder("--report", report)
    if path.exists() and not model_file.is_model(path):
        raise DataError(f"{path}: exists and is not a model. Choose another name: --output")
    table = options.read(data, header, delimiter)
    if resume is None:
        model = _start(
            table,
            options.require_target(table, target),
            loss,
            {
                "categorical": categorical or (),
                "drop": drop or (),
                "most_categories": most_categories,
            },
            {"quantile": quantile, "delta": delta, "learner": learner},
        )
    else:
        model = _continue(table, model_file.load(resume), resume, target)
    with interrupting.deferred() as asked_to_stop:
        if not as_json:
            notes().print(summary.task(model), markup=False)
        with progress.bar("learning", model.source.rows, model.source.learned) as show:
            learned = learning.learn(model, table, asked_to_stop, show)
        model_file.save(path, learned.model)
    for line in learned.surprises.lines():
        notes().print(f"{data}: {line}", markup=False)
    result = summary.result(learned, path)
    if report is not None:
        typed = shlex.join(["varynorm", *sys.argv[1:]])
        report_page.write(report, typed, learned.seconds, result, learned.model.curve)
    typer.echo(json.dumps(result) if as_json else summary.text(result))
    if not result["finished"]:
        command = ["varynorm", "fit", str(data)]
        command += [] if table.is_sparse else ["--target", model.schema.target.name]
        command += [] if header is None else ["--header" if header else "--no-header"]
        command += [] if delimiter is None else ["--delimiter", delimiter]
        typer.echo(f"To go on: {shlex.join([*command, '--resume', str(path)])}", err=True)
        raise typer.Exit(INTERRUPTED)


def _start(table, target, loss, scan_settings, estimator_settings):
    """A model that has learned nothing yet."""
    with progress.bar("looking at the columns", table.total_rows) as show:
        scanned = scan(table, target, **scan_settings, report=show)
    if loss is None:
        loss = choosing.guess_loss(scanned.schema.target)
        if why := choosing.reason(scanned.schema.target, table.path):
            notes().print(why, markup=False)
    schema = choosing.for_loss(scanned.schema, loss, table.path)
    model_file.require_moderate(schema, table.path)
    return model_file.Model(
        choosing.make_estimator(loss, **estimator_settings),
        schema,
        model_file.Source(
            str(table.path), model_file.fingerprint(table.path), scanned.rows, learned=0
        ),
        LossCurve(),
        wrong=0,
        label_counts=None if schema.target.labels is None else scanned.label_counts,
    )


def _continue(table, model, path, target):
    """The model in the middle of its file, or at the start of another one."""
    if target not in (None, model.schema.target.name):
        raise DataError(
            f"{path}: the model's target is {model.schema.target.name!r}, not {target!r}."
        )
    encoding.require_columns(model.schema, table, with_target=True)
    source = model.source
    fingerprint = model_file.fingerprint(table.path)
    is_same = fingerprint == source.fingerprint
    is_done = source.learned == source.rows
    if is_same and is_done:
        raise DataError(f"{path}: has learned all {source.rows:,} rows of {table.path} already.")
    if not is_same and not is_done:
        raise DataError(
            f"{path}: stopped in the middle of {source.name}, which {table.path} is not. "
            "First finish it: "
            + shlex.join(["varynorm", "fit", source.name, "--resume", str(path)])
        )
    if is_same:
        return model
    rows = table.total_rows
    if rows is None:
        with progress.bar("counting rows", None) as show:
            rows = 0
            for batch in table.batches(learning.MOST_ROWS_A_BATCH):
                rows += batch.num_rows
                show(rows)
    return model._replace(source=model_file.Source(str(table.path), fingerprint, rows, 0))
