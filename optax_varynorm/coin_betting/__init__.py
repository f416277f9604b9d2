"""One-dimensional parameter-free learners: each bets a fraction of its wealth on a coin."""

from optax_varynorm.coin_betting.constrained_bets import ConstrainedBetsState, constrained_bets
from optax_varynorm.coin_betting.freegrad_betting import FreeGradBettingState, freegrad_betting
from optax_varynorm.coin_betting.fullonedolo import CoinBettingState, coin_betting
from optax_varynorm.coin_betting.kt_betting import KTBettingState, kt_betting

__all__ = [
    "CoinBettingState",
    "ConstrainedBetsState",
    "FreeGradBettingState",
    "KTBettingState",
    "coin_betting",
    "constrained_bets",
    "freegrad_betting",
    "kt_betting",
]
