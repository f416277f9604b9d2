"""The page of ``varynorm fit --report``: the progressive loss, and the result."""

import pathlib
from typing import Any

from matplotlib.figure import Figure

from optax_varynorm import report
from optax_varynorm.cli.loss_curve import LossCurve

MEANING = (
    "The mean loss of the predictions made before the answer was seen, after so many rows. "
    "Nothing was tuned, and no row was learned from before it was predicted."
)


def write(
    path: pathlib.Path, command: str, seconds: float, found: dict[str, Any], curve: LossCurve
) -> None:
    """An HTML file.

    Args:
      command: that was run.
      found: what there is to say, by name.
    """
    rows = [(name.replace("_", " "), value) for name, value in found.items() if value is not None]
    section = report.Section(
        "Progressive loss",
        MEANING,
        [
            report.Figure("Mean loss by rows learned from.", _draw(curve, found)),
            report.Table("The result, as --json has it.", ("what", "value"), rows),
        ],
    )
    made = report.how_it_was_made(command, seconds)
    report.write_report(path, f"{found['target']}, {found['loss']} loss", [section], made)


def _draw(curve, found):
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*curve.points(), strict=True), label="progressive loss")
    if "best_constant_loss" in found:
        constant = found["best_constant_loss"]
        axes.axhline(constant, linestyle="--", color="gray", label="best constant in hindsight")
    axes.set_xlabel("rows")
    axes.set_ylabel(f"mean {found['loss']} loss")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure
