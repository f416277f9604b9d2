"""Columns of text: what is missing in them, and the numbers they hold."""

import pyarrow as pa
import pyarrow.compute as pc

# Case and the spaces around do not matter.
MISSING = pa.array(["", "?", "na", "n/a", "#n/a", "nan", "null", "none", "-nan"])


def clean(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without spaces around; null where missing."""
    trimmed = pc.utf8_trim_whitespace(text)
    is_missing = pc.is_in(pc.utf8_lower(trimmed), MISSING)
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), trimmed)


def as_numbers(text: pa.ChunkedArray) -> tuple[pa.ChunkedArray | None, int]:
    """The numbers in clean text; or ``None`` and the index of the first value that is not one."""
    try:
        return pc.cast(text, pa.float64()), -1
    except pa.ArrowInvalid:
        pass
    try:
        return pc.cast(_without_plus(text), pa.float64()), -1
    except pa.ArrowInvalid:
        return None, next(i for i, value in enumerate(text) if not is_number(value))


def is_number(value: pa.Scalar) -> bool:
    """Whether this clean text is one; null is."""
    try:
        pc.cast(_without_plus(value), pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _without_plus(text):
    """Arrow reads no plus signs."""
    return pc.replace_substring_regex(text, r"^\+", "")
