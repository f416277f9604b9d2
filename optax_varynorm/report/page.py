"""The page: no scripts, no requests, light or dark as the reader's system is, and narrow enough."""

import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from optax_varynorm.report.drawing import to_svg

if TYPE_CHECKING:
    import matplotlib.figure


class Table(NamedTuple):
    """Attributes:
    caption: a sentence below it.
    columns: their names.
    rows: of the same length each; numbers are aligned to the right.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


class Figure(NamedTuple):
    """Attributes:
    caption: a sentence below it, which is also what a screen reader says.
    figure: of matplotlib.
    """

    caption: str
    figure: "matplotlib.figure.Figure"


class Section(NamedTuple):
    """Attributes:
    title: a heading.
    text: paragraphs with empty lines between; may be empty.
    parts: tables and figures. Two figures stand side by side where there is room.
    """

    title: str
    text: str
    parts: Sequence[Table | Figure]


STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --line: #d0d7de; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #3d444d; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1, h2 { line-height: 1.2; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.75rem; border-bottom: 1px solid var(--line); text-align: left; }
td.number { text-align: right; white-space: nowrap; }
.figures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }
figure { margin: 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption, footer { font-size: 0.9rem; opacity: 0.85; }
footer { border-top: 1px solid var(--line); margin-top: 2rem; overflow-wrap: anywhere; }
"""


def write_report(
    path: pathlib.Path,
    title: str,
    sections: Sequence[Section],
    made: Mapping[str, str],
    summary: str = "",
) -> None:
    """An HTML file in a folder that is made if there is none.

    Args:
      title: of the page.
      sections: in this order.
      made: how the page was made, by name; see ``how_it_was_made``.
      summary: a paragraph below the title.
    """
    bodies = [_section(section, f"s{number}") for number, section in enumerate(sections)]
    footer = "<br>".join(f"{html.escape(k)}: {html.escape(v)}" for k, v in made.items())
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Browsers ask for an icon; this one is empty, and here.
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n<p>{html.escape(summary)}</p>\n"
        + "\n".join(bodies)
        + f"\n<footer><p>How this page was made<br>{footer}</p></footer></body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _section(section: Section, name: str) -> str:
    tables = [_table(part) for part in section.parts if isinstance(part, Table)]
    figures = [
        _figure(part, f"{name}f{number}")
        for number, part in enumerate(section.parts)
        if isinstance(part, Figure)
    ]
    grid = f'<div class="figures">{"".join(figures)}</div>' if figures else ""
    paragraphs = filter(None, section.text.split("\n\n"))
    text = "".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in paragraphs)
    title = html.escape(section.title)
    return f"<section><h2>{title}</h2>{text}{''.join(tables)}{grid}</section>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f'<figure><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        f"<figcaption>{html.escape(table.caption)}</figcaption></figure>"
    )


def _cell(value: object) -> str:
    text = html.escape(str(value))
    return f'<td class="number">{text}</td>' if _is_number(text) else f"<td>{text}</td>"


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def _figure(figure: Figure, name: str) -> str:
    caption = html.escape(figure.caption)
    drawing = to_svg(figure.figure, name, label=caption)
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"
