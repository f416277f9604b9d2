"""What is wrong with a file."""

import collections
import pathlib
from collections.abc import Iterable


class DataError(Exception):
    """Something about a file that the user can mend; the message is one line that says how."""


def quoted(names) -> str:
    """Names for a message, the first twenty of them."""
    names = [*map(str, names)]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more


def require_different(path: pathlib.Path, columns: Iterable[str]) -> None:
    """No two columns of one name."""
    if twice := sorted(name for name, count in collections.Counter(columns).items() if count > 1):
        raise DataError(f"{path}: two columns have the name {quoted(twice)}; rename one.")
