"""Bounds of every theorem, and the sequences that tell them apart."""

from optax_varynorm.regret.bettor_bound import bettor_bound
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
from optax_varynorm.regret.wealth_bounds import (
    coin_betting_bound,
    constraint_cost,
    freegrad_betting_bound,
    kt_betting_bound,
)

__all__ = [
    "bettor_bound",
    "coin_betting_bound",
    "constraint_cost",
    "freegrad_betting_bound",
    "kt_betting_bound",
    "sec_adagrad",
    "thm_1dred",
    "thm_adagraddetail",
    "thm_constrainedftrl",
    "thm_ftrl",
    "thm_fullmatrixdetail",
    "thm_fullonedolo",
    "thm_varynorm",
]
