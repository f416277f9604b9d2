"""``varynorm demo``: a race that nobody tuned, on the screen and in a page."""

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

    Takes a minute or two, most of it compiling. Prints a table and writes a page with plots.

    [bold]Example[/bold]

    [cyan]varynorm demo --report out/report.html[/cyan]
    """
    began = time.perf_counter()
    with rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
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
                line=f"loss {progress.loss:.3g}, {progress.rounds_per_second:,.0f} rounds/s",
            )

        races = story.play(watch)
    table = rich.table.Table(title=story.TITLE)
    for name in story.COLUMNS:
        is_text = name in ("stream", "learner")
        table.add_column(name, justify="left" if is_text else "right")
    rows = story.table(races)
    for index, row in enumerate(rows):
        is_last = index + 1 == len(rows) or rows[index + 1][0] != row[0]
        table.add_row(*row, end_section=is_last)
    rich.console.Console().print(table)
    seconds = time.perf_counter() - began
    made = how_it_was_made("varynorm demo", seconds)
    write_report(report, story.TITLE, story.sections(races), made, story.SUMMARY)
    typer.echo(f"{time.perf_counter() - began:.0f} seconds. Plots: {report}")
