"""Figures of matplotlib as SVG inside a page, in the page's colours."""

import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import matplotlib.figure


def to_svg(figure: "matplotlib.figure.Figure", name: str, label: str) -> str:
    """An ``svg`` element: black becomes the page's ink, and white lets its paper through.

    Args:
      name: put before every id of the drawing, since a page has many drawings.
      label: what a screen reader says, already escaped.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    drawing = file.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", drawing)
    drawing = drawing.replace("#ffffff", "none").replace("#000000", "currentColor")
    # What has no colour of its own is black: glyphs.
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{label}" fill="currentColor" ', 1)
