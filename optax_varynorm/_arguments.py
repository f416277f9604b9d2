"""Checks of the numbers a user passes; a traced number (``inject_hyperparams``) passes unseen."""

import jax
import jax.numpy as jnp
import numpy as np


def is_known(value) -> bool:
    """Whether a number has a value now, rather than at run time."""
    return not isinstance(value, jax.core.Tracer)


def require(value, condition, message: str) -> None:
    """Raise ``ValueError(message)`` unless ``condition(value)`` holds for all entries."""
    if is_known(value) and not np.all(condition(np.asarray(value, np.float64))):
        raise ValueError(message)


def require_positive(name: str, value, meaning: str) -> None:
    require_numbers(**{name: value})
    require(
        value,
        lambda number: np.ndim(number) == 0 and np.isfinite(number) and number > 0,
        f"`{name}` is {meaning} and must be a positive number, not {value}.",
    )


def require_moderate(name: str, value, meaning: str) -> None:
    """Positive, with squares and reciprocals that float32 can hold beside those of others."""
    require_positive(name, value, meaning)
    require(
        value,
        lambda number: 1e-12 <= number <= 1e12,
        f"`{name}` is {meaning} and must lie between 1e-12 and 1e12 for float32 to work with it, "
        f"but it is {value}. Measure the loss in other units.",
    )


def require_numbers(**values) -> None:
    for name, value in values.items():
        if is_known(value) and not jnp.issubdtype(np.asarray(value).dtype, np.number):
            raise ValueError(f"`{name}` must be a number, not {value!r}.")
