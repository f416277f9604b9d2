"""``varynorm demo``: a race that nobody tuned, on the screen and in a page."""

import itertools
import operator
import pathlib
import time
from typing import Annotated

import rich.console
import rich.progress
import rich.table
import typer

from optax_varynorm.cli.app import app, notes
from optax_varynorm.demo import story
from optax_varynorm.report import how_it_was_made, write_report


@app.command()
def demo(
    report: Annotated[pathlib.Path, typer.Option(help="Where the page goes.")] = pathlib.Path(
        "out/report.html"
    ),
) -> None:
    """A race on real streams: one learner without a learning rate, three with 21 each.

    Those three play with standardized features, as people use them, and in raw units.

    Takes a minute or two, most of it compiling. Prints a table and writes a page with plots.

    [bold]Example[/bold]

    [cyan]varynorm demo --report out/report.html[/cyan]
    """
    began = time.perf_counter()
    with rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(bar_width=8),
        rich.progress.TextColumn("{task.fields[line]}"),
        rich.progress.TimeElapsedColumn(),
        console=notes(),
    ) as bars:
        tasks: dict[str, rich.progress.TaskID] = {}

        def watch(name, progress):
            if name not in tasks:
                tasks[name] = bars.add_task(name, line="")
            bars.update(
                tasks[name],
                total=progress.total_rounds,
                completed=progress.rounds_played,
                line=f"best run, last rounds: {progress.loss:.3g}",
            )

        def done(name, what):
            bars.update(tasks[name], line=what)

        races = story.play(watch, done)
    table = rich.table.Table(title=story.TITLE, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in story.COLUMNS:
        is_text = name in ("stream", "learner", "features")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    for _, rows in itertools.groupby(story.table(races), key=operator.itemgetter(0)):
        for row in rows:
            table.add_row(*row)
        table.add_row()
    rich.console.Console().print(table)
    for line in (*story.claims(races), story.EXPLANATION):
        typer.echo(line)
    seconds = time.perf_counter() - began
    made = how_it_was_made("varynorm demo", seconds)
    write_report(report, story.TITLE, story.sections(races), made, story.SUMMARY)
    typer.echo(f"{time.perf_counter() - began:.0f} seconds. Plots: {report}")
