"""``varynorm race``: this package and its peers on the same rows."""

import json
from typing import Annotated, Literal

import numpy as np
import rich.box
import rich.console
import rich.table
import typer

from optax_varynorm.cli import choosing, options, progress
from optax_varynorm.cli.app import app, notes
from optax_varynorm.racing import figures, libraries, linear, measuring, peers
from optax_varynorm.tables import DataError, encoding, scan
from optax_varynorm.tables.schema import label_text

OURS = ("scale_invariant", "varynorm", "diagonal_scale_invariant", "full_matrix")
ROWS_A_BATCH = 4096


@app.command()
def race(
    data: options.Data,
    target: options.TargetColumn = None,
    positive: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Tell this class from all others; needed if there are more than two.",
            show_default=False,
        ),
    ] = None,
    loss: Annotated[
        Literal["logistic", "absolute"] | None,
        typer.Option(
            help="Log loss of two classes, or absolute loss of numbers. Left out: by the target.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=2, help="Only the first rows.", show_default="all")
    ] = None,
    shuffle: Annotated[
        int | None,
        typer.Option(metavar="SEED", help="Shuffle the rows by this seed.", show_default=False),
    ] = None,
    categorical: options.Categorical = None,
    drop: options.Drop = None,
    most_categories: options.MostCategories = 1000,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    as_json: options.AsJson = False,
) -> None:
    """Progressive loss of this package and of its peers on your data: one pass, raw units.

    Ours and Optax's learning-rate-free optimizers run at their defaults; AdaGrad, Adam and SGD at
    21 learning rates, of which the best in hindsight counts. Vowpal Wabbit and River take part if
    they are installed and there are two classes. Log loss for two classes, absolute loss for
    numbers. All rows are held in memory, and in the order of the file unless --shuffle.

    [bold]Examples[/bold]

    [cyan]varynorm race houses.csv --target price[/cyan]

    [cyan]varynorm race iris.csv --target species --positive setosa --shuffle 0[/cyan]
    """
    table = options.read(data, header, delimiter)
    with progress.bar("looking at the columns", table.total_rows) as show:
        scanned = scan(
            table,
            options.require_target(table, target),
            categorical or (),
            drop or (),
            most_categories,
            report=show,
        )
    why = None if loss else choosing.reason(scanned.schema.target, data)
    schema = choosing.for_loss(
        scanned.schema, loss or choosing.guess_loss(scanned.schema.target), data
    )
    stream = _in_memory(schema, table, positive, rows, shuffle)
    is_binary = schema.target.labels is not None
    contenders = peers.gather(OURS, {}, peers.RAW_UNIT_RATES)
    remarks = libraries.notes() + ([why] if why else [])
    if is_binary:
        contenders = peers.in_order(contenders | libraries.present())
    else:
        remarks = ["Left out: other libraries, which are measured on two classes only."]
    loss_of = linear.log_loss if is_binary else linear.absolute_loss
    records = {}
    with notes().status("") as status:
        for name, contender in contenders.items():
            status.update(name)
            records[name] = {
                "kind": contender.kind,
                **measuring.measure(contender, stream, loss_of),
            }
    constant = (
        measuring.best_constant_log_loss(stream.labels)
        if is_binary
        else measuring.best_constant_absolute_loss(stream.labels)
    )
    result = {
        "rows": len(stream.labels),
        "features": stream.features.shape[1] - 1,
        "loss": "log loss" if is_binary else "absolute loss",
        "best_constant": constant,
        "learners": records,
        "notes": remarks,
    }
    if as_json:
        typer.echo(json.dumps(result))
        return
    _show(result, data)


def _in_memory(schema, table, positive, most_rows, seed) -> linear.Stream:
    """All rows, or the first ones, with a constant one appended."""
    parts, count = [], 0
    surprises = encoding.Surprises()
    for batch in table.batches(ROWS_A_BATCH):
        features = encoding.features(schema, table, batch, count + 1, surprises)
        dense = features.toarray() if table.is_sparse else features
        parts.append((dense, encoding.targets(schema, table, batch, count + 1)))
        count += batch.num_rows
        if most_rows is not None and count >= most_rows:
            break
    features, targets = (np.concatenate(part)[:most_rows] for part in zip(*parts, strict=True))
    if schema.target.labels is not None:
        targets = targets == _positive(schema.target, positive, table.path)
    elif positive is not None:
        raise typer.BadParameter(f"--positive needs classes; {schema.target.name!r} is a number.")
    order = np.arange(len(targets))
    if seed is not None:
        order = np.random.default_rng(seed).permutation(order)
    constant = np.ones((len(targets), 1), np.float32)
    return linear.Stream(np.hstack([features, constant])[order], targets[order].astype(np.float32))


def _positive(target, positive, path) -> int:
    """Which class is 1; of two, the second."""
    names = [label_text(label) for label in target.labels]
    if positive is None and len(names) == 2:
        return 1
    if positive not in names:
        asked = "" if positive is None else f", not {positive!r}"
        numbers = "" if target.is_text else " To predict a number: --loss absolute"
        raise DataError(
            f"{path}: {target.name!r} has {len(names)} classes. Tell one of {', '.join(names)} "
            f"from the others: --positive LABEL{asked}.{numbers}"
        )
    return names.index(positive)


def _show(result, data):
    title = f"{data.name}: {result['rows']:,} rows, {result['features']:,} features"
    table = rich.table.Table(title=title, box=rich.box.SIMPLE)
    table.add_column("", no_wrap=True)
    table.add_column("kind")
    for heading in (f"mean {result['loss']}", "rate", "rows/s"):
        table.add_column(heading, justify="right")
    records = result["learners"]
    losses = {name: float(figures.numbers(record["loss"])) for name, record in records.items()}
    for name in sorted(records, key=losses.__getitem__):
        record = records[name]
        table.add_row(
            name,
            record["kind"],
            figures.figure(losses[name]),
            figures.rate_note(record),
            f"{record['examples_per_second']:,.0f}",
        )
    table.add_row("best constant in hindsight", "", figures.figure(result["best_constant"]), "", "")
    rich.console.Console().print(table)
    for note in result["notes"]:
        notes().print(note, markup=False)
