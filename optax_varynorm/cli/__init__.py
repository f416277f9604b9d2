"""The command line: ``varynorm COMMAND``.

One module a command; each registers itself at ``app.app`` when ``commands`` imports it.
"""

import contextlib
import importlib.util
import os
import sys

NEEDED = ("typer", "rich", "sklearn", "pyarrow", "matplotlib")


def main() -> None:
    """Run the command that the arguments name, and end the process."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise SystemExit(
            f"varynorm: {', '.join(missing)} not installed. Run: pip install 'optax-varynorm[cli]'"
        )
    from optax_varynorm.cli.commands import app

    try:
        app(prog_name="varynorm")
    except SystemExit as ended:
        # Arrow's threads that read ahead outlive an error or an early stop, and then abort an
        # orderly exit of the interpreter now and then, whatever the exit code was.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.flush()
        os._exit(int(ended.code or 0))
