"""``varynorm regret``: the paper's sequences, played by its norms and their combination."""

import json
import pathlib
from typing import Annotated

import rich.console
import rich.table
import typer

import optax_varynorm as vn
from optax_varynorm.cli.app import app, notes
from optax_varynorm.demo import paper_sequences


@app.command()
def regret(
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON, for machines.")] = False,
    plot: Annotated[
        pathlib.Path | None,
        typer.Option(help="Draw regret and bound by round; .png, .svg or .pdf.", metavar="FILE"),
    ] = None,
) -> None:
    """Regret and certified bound on the paper's sequences: three norms, and their combination.

    All play inside the unit ball, 768 rounds in 64 dimensions, against the best point in hindsight.

    [bold]Example[/bold]

    [cyan]varynorm regret --plot regret.png[/cyan]
    """
    if plot is not None and not plot.parent.is_dir():
        raise typer.BadParameter(f"--plot {plot}: there is no folder {plot.parent}.")
    with notes().status("compiling") as status:
        outcomes = paper_sequences.play(
            lambda learner, sequence, progress: status.update(f"{learner}, {sequence}: {progress}")
        )
    if plot is not None:
        _draw(outcomes).savefig(plot)
    by_sequence = {
        sequence: [outcome for outcome in outcomes if outcome.sequence == sequence]
        for sequence in paper_sequences.SEQUENCES
    }
    if as_json:
        answer = {
            sequence: {o.learner: {"regret": o.regret, "bound": o.bound} for o in found}
            for sequence, found in by_sequence.items()
        }
        typer.echo(json.dumps(answer))
        return
    table = rich.table.Table("regret <= bound", title="unit ball, d = 64, 768 rounds")
    for sequence in by_sequence:
        table.add_column(sequence, justify="right")
    for learner, *found in zip(paper_sequences.LEARNERS, *by_sequence.values(), strict=True):
        table.add_row(learner, *(f"{o.regret:.1f} <= {o.bound:.1f}" for o in found))
    rich.console.Console().print(table)


def _draw(outcomes):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.5), layout="constrained")
    panels = figure.subplots(1, len(paper_sequences.SEQUENCES))
    for axes, sequence in zip(panels, paper_sequences.SEQUENCES, strict=True):
        games = {o.learner: o.game for o in outcomes if o.sequence == sequence}
        vn.plot_regret(games, axes).set_title(sequence)
    return figure
