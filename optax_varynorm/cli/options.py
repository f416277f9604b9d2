"""Arguments and options that several commands share."""

import os
import pathlib
from typing import Annotated

import typer

from optax_varynorm.tables import DataError, ReadSettings, open_table
from optax_varynorm.tables.errors import quoted
from optax_varynorm.tables.libsvm_table import LABEL

Data = Annotated[
    pathlib.Path,
    typer.Argument(
        metavar="DATA",
        help="CSV, parquet or LIBSVM; .gz and .bz2 too, but for parquet.",
        show_default=False,
    ),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="COL",
        help="The column to predict; LIBSVM files need none.",
        show_default=False,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether a CSV file starts with names. Left out: it does if no field of its first "
        "line is a number. Without names, columns are 1, 2, 3 and so on.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Between the fields of a CSV file; a comma, in .tsv a tab."),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COL", help="Take this column for categories, numbers or not. May be repeated."
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COL", help="Leave this column out. May be repeated.")
]
MostCategories = Annotated[int, typer.Option(min=1, help="That a column may have.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON, for machines.")]


def read(data: pathlib.Path, header: bool | None, delimiter: str | None):
    r"""The table; a tab may be written as ``\t``."""
    if delimiter is not None:
        delimiter = delimiter.replace("\\t", "\t")
        if len(delimiter) != 1:
            raise typer.BadParameter(f"--delimiter needs one character, not {delimiter!r}.")
    return open_table(data, ReadSettings(header, delimiter))


def require_target(table, target: str | None) -> str:
    """The column's name; LIBSVM files have a label."""
    if target is None and not table.is_sparse:
        raise typer.BadParameter(
            f"--target COL is needed: the column to predict. {table.path} has the columns "
            f"{quoted(table.columns)}."
        )
    return target or LABEL


def require_folder(option: str, path: pathlib.Path) -> None:
    """There, and one to write to: found out before an hour of learning, not after."""
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{option} {path}: there is no folder {path.parent}.")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{path}: nothing can be written to the folder {path.parent}.")
