"""What all commands share: the application, its exit codes, and where it writes.

A command is a function under ``@app.command()``. Answers go to the standard output, everything else
to the standard error. What is wrong with the user's data is a ``DataError``: one line, exit code 1.
"""

import inspect
import re
from typing import Any

import jax
import rich.console
import typer
import typer.core

from optax_varynorm.tables.errors import DataError

DATA_ERROR = 1
INTERRUPTED = 130
NO_MEMORY = "RESOURCE_EXHAUSTED"


class Commands(typer.core.TyperGroup):
    """No tracebacks for what the user can mend, nor for Ctrl-C; help as wide as the screen."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        for command in (self, *self.commands.values()):
            # A line break of a docstring is a space, an empty line is a new paragraph.
            command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))

    def invoke(self, context: Any) -> Any:  # older typers have click's own context
        try:
            return super().invoke(context)
        except DataError as error:
            typer.echo(f"varynorm: {error}", err=True)
            raise typer.Exit(DATA_ERROR) from error
        except (MemoryError, jax.errors.JaxRuntimeError) as error:
            if isinstance(error, jax.errors.JaxRuntimeError) and NO_MEMORY not in str(error):
                raise
            typer.echo("varynorm: not enough memory for so many features", err=True)
            raise typer.Exit(DATA_ERROR) from error
        except BrokenPipeError:  # who reads the answers has read enough
            raise
        except OSError as error:  # a file that cannot be opened, a full disk
            place = "" if error.filename is None else f"{error.filename}: "
            typer.echo(f"varynorm: {place}{error.strerror or error}", err=True)
            raise typer.Exit(DATA_ERROR) from error
        except KeyboardInterrupt as error:
            typer.echo("varynorm: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    cls=Commands,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def varynorm() -> None:
    """Linear models that need no learning rate and no scaling of features, from one pass.

    [cyan]varynorm COMMAND --help[/cyan] has examples of each command.
    """


def notes() -> rich.console.Console:
    """For progress and remarks: the standard error as it is now, which tests replace."""
    return rich.console.Console(stderr=True, highlight=False, soft_wrap=True)
