"""A page about a run: its result and its progressive loss, without scripts or other files."""

import html
import pathlib
from typing import Any

from optax_varynorm.cli.loss_curve import LossCurve

WIDTH, HEIGHT, MARGIN = 720, 320, 60

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 16px sans-serif; max-width: 760px; margin: 2em auto }}
td {{ padding: 0.1em 1em 0.1em 0 }} text {{ font-size: 13px }}</style></head>
<body><h1>{title}</h1>
<p>Mean loss of the predictions made before the answer was seen, after so many rows:</p>
{curve}
<table>{rows}</table></body></html>
"""


def write(path: pathlib.Path, title: str, found: dict[str, Any], curve: LossCurve) -> None:
    """An HTML file.

    Args:
      found: what there is to say, by name.
    """
    rows = "".join(
        f"<tr><td>{html.escape(name.replace('_', ' '))}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in found.items()
    )
    page = PAGE.format(title=html.escape(title), curve=_svg(curve.points()), rows=rows)
    path.write_text(page, encoding="utf-8")


def _svg(points: list[tuple[int, float]]) -> str:
    """A line from the first block to the last; the loss axis starts at zero."""
    most_rows = points[-1][0]
    most_loss = max(loss for _, loss in points) or 1.0
    places = " ".join(
        f"{MARGIN + (WIDTH - 2 * MARGIN) * rows / most_rows:.1f},"
        f"{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * loss / most_loss:.1f}"
        for rows, loss in points
    )
    left, right, bottom = MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="progressive loss">'
        f'<path d="M{left},{MARGIN} V{bottom} H{right}" fill="none" stroke="#888"/>'
        f'<polyline points="{places}" fill="none" stroke="#1664c0" stroke-width="2"/>'
        f'<text x="{left - 6}" y="{MARGIN}" text-anchor="end">{most_loss:.3g}</text>'
        f'<text x="{left - 6}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{right}" y="{bottom + 20}" text-anchor="end">{most_rows:,} rows</text>'
        f'<text x="{right}" y="{MARGIN}" text-anchor="end">{points[-1][1]:.4g} at the end</text>'
        "</svg>"
    )
