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


def read_numbers(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Float64, null where missing; ``None`` if something is neither missing nor a number."""
    try:
        numbers = pc.cast(text, pa.float64())  # most columns need no cleaning
    except pa.ArrowInvalid:
        try:
            numbers = pc.cast(_without_plus(clean(text)), pa.float64())
        except pa.ArrowInvalid:
            return None
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)


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
