"""What is wrong with a file."""


class DataError(Exception):
    """Something about a file that the user can mend; the message is one line that says how."""


def quoted(names) -> str:
    """Names for a message, the first twenty of them."""
    names = [*map(str, names)]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more
