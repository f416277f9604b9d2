"""The paper's reductions: each wraps a learner and is one itself."""

from optax_varynorm.reductions.anchored import AnchoredState, anchored
from optax_varynorm.reductions.around_average import AroundAverageState, around_average
from optax_varynorm.reductions.combine import CombineState, combine
from optax_varynorm.reductions.grounded import GroundedState, grounded
from optax_varynorm.reductions.per_block import per_block
from optax_varynorm.reductions.per_coordinate import per_coordinate
from optax_varynorm.reductions.project import ProjectState, project
from optax_varynorm.reductions.scale_by_coin_betting import (
    ScaleByCoinBettingState,
    scale_by_coin_betting,
)
from optax_varynorm.reductions.with_varying_norm import WithVaryingNormState, with_varying_norm

__all__ = [
    "AnchoredState",
    "AroundAverageState",
    "CombineState",
    "GroundedState",
    "ProjectState",
    "ScaleByCoinBettingState",
    "WithVaryingNormState",
    "anchored",
    "around_average",
    "combine",
    "grounded",
    "per_block",
    "per_coordinate",
    "project",
    "scale_by_coin_betting",
    "with_varying_norm",
]
