"""Progress bars with rate and remaining time; nothing when nobody watches."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

import rich.progress

from optax_varynorm.cli.app import notes


class Show(Protocol):
    """Moves a bar to so many rows."""

    def __call__(self, rows: int, remark: str = "") -> None: ...


class _Rate(rich.progress.ProgressColumn):
    def render(self, task):
        speed = task.finished_speed or task.speed
        return rich.progress.Text("" if speed is None else f"{speed:,.0f} rows/s")


@contextlib.contextmanager
def bar(title: str, total: int | None, done: int = 0) -> Iterator[Show]:
    """A bar on the standard error, if that is a terminal.

    Args:
      total: rows; ``None`` if nobody knows.
      done: rows that were read before, and do not count for the rate.
    """
    console = notes()
    if not console.is_terminal:
        yield _show_nothing
        return
    with rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.completed:,} rows"),
        _Rate(),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.fields[remark]}"),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task(title, total=total, completed=done, remark="")

        def show(rows: int, remark: str = "") -> None:
            progress.update(task, completed=rows, remark=remark)

        yield show


def _show_nothing(rows: int, remark: str = "") -> None:
    pass
