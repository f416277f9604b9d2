"""The command line: ``varynorm fit``, ``predict``, ``race``, ``bench``.

One module a command; each registers itself at ``app.app`` when ``commands`` imports it.
"""

import importlib.util

NEEDED = ("typer", "rich", "sklearn", "pyarrow", "matplotlib")


def main() -> None:
    """Run the command that the arguments name."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise SystemExit(
            f"varynorm: {', '.join(missing)} not installed. Run: pip install 'optax-varynorm[cli]'"
        )
    from optax_varynorm.cli.commands import app

    app(prog_name="varynorm")
