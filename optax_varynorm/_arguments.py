"""Checks of the numbers a user passes; a traced number (``inject_hyperparams``) passes unseen."""

import jax
import numpy as np


def is_known(value) -> bool:
    """Whether a number has a value now, rather than at run time."""
    return not isinstance(value, jax.core.Tracer)


def require(value, condition, message: str) -> None:
    """Raise ``ValueError(message)`` unless ``condition(value)`` holds for all entries."""
    if is_known(value) and not np.all(condition(np.asarray(value))):
        raise ValueError(message)


def require_positive(name: str, value, meaning: str) -> None:
    require(
        value,
        lambda number: np.isfinite(number) & (number > 0),
        f"`{name}` is {meaning} and must be a positive number, not {value}.",
    )
