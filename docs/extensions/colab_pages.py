"""A page for every Colab, written at build time: its cells as Markdown, in `docs/colabs/`."""

import json
import os
import pathlib

COLABS = pathlib.Path(__file__).parent.parent.parent / "colabs"
# An image on the network; pages of this site have none. The link it carries stays.
BADGE = "![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)"


def as_markdown(colab: pathlib.Path) -> str:
    cells = json.loads(colab.read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    # A page starts with its title, and the badge comes before it.
    sources[0], sources[1] = sources[1], sources[0].replace(BADGE, "Open in Colab")
    cells[0], cells[1] = cells[1], cells[0]
    pages = [
        source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        for cell, source in zip(cells, sources, strict=True)
    ]
    return "\n\n".join(pages) + "\n"


def write_pages(app) -> None:
    folder = pathlib.Path(app.srcdir) / "colabs"
    folder.mkdir(exist_ok=True)
    pages = {colab.stem + ".md": as_markdown(colab) for colab in COLABS.glob("*.ipynb")}
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text() != text:
            # At once, for two builds at the same time.
            unfinished = folder / f"{name}.{os.getpid()}"
            unfinished.write_text(text)
            unfinished.replace(page)


def setup(app):
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
