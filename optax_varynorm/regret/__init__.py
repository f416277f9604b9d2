"""Bounds of every theorem, and the sequences that tell them apart."""

from optax_varynorm.regret.bounds import (
    thm_1dred,
    thm_adagraddetail,
    thm_constrainedftrl,
    thm_ftrl,
    thm_fullmatrixdetail,
    thm_fullonedolo,
    thm_varynorm,
)
from optax_varynorm.regret.sequences import sec_adagrad

__all__ = [
    "sec_adagrad",
    "thm_1dred",
    "thm_adagraddetail",
    "thm_constrainedftrl",
    "thm_ftrl",
    "thm_fullmatrixdetail",
    "thm_fullonedolo",
    "thm_varynorm",
]
