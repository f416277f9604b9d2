"""Docstrings that start with ``Attributes:``, whose entries have lost their indentation."""


def indent_entries(app, what, name, thing, options, lines) -> None:
    if lines and lines[0] == "Attributes:":
        lines[1:] = ["    " + line if line else line for line in lines[1:]]


def setup(app):
    # Before napoleon, which has the default priority of 500.
    app.connect("autodoc-process-docstring", indent_entries, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
