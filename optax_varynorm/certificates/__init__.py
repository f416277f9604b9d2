"""Exact regret, bounds of every theorem, and the sequences that tell them apart."""

from optax_varynorm.certificates.bounds import (
    thm_1dred,
    thm_adagraddetail,
    thm_constrainedftrl,
    thm_ftrl,
    thm_fullmatrixdetail,
    thm_fullonedolo,
    thm_varynorm,
)
from optax_varynorm.certificates.sequences import sec_adagrad
from optax_varynorm.certificates.tracking import (
    TrackRegretState,
    certified_gap,
    regret,
    regret_bound,
    track_regret,
    worst_regret,
)
from optax_varynorm.coin_betting.wealth import bettor_bound
from optax_varynorm.coin_betting.wealth_bounds import (
    coin_betting_bound,
    constraint_cost,
    freegrad_betting_bound,
    kt_betting_bound,
)

__all__ = [
    "TrackRegretState",
    "bettor_bound",
    "certified_gap",
    "coin_betting_bound",
    "constraint_cost",
    "freegrad_betting_bound",
    "kt_betting_bound",
    "regret",
    "regret_bound",
    "sec_adagrad",
    "thm_1dred",
    "thm_adagraddetail",
    "thm_constrainedftrl",
    "thm_ftrl",
    "thm_fullmatrixdetail",
    "thm_fullonedolo",
    "thm_varynorm",
    "track_regret",
    "worst_regret",
]
