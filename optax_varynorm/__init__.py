"""Online learning with varying norms, as Optax gradient transformations.

>>> import jax.numpy as jnp, optax, optax_varynorm as vn
>>> optimizer = vn.full_matrix(domain=vn.half_space(jnp.ones(3), 1.0))
>>> params = jnp.zeros(3)
>>> state = optimizer.init(params)
>>> updates, state = optimizer.update(jnp.array([0.6, 0.0, -0.8]), state, params)
>>> params = optax.apply_updates(params, updates)
"""

from optax_varynorm import certificates
from optax_varynorm.averaging import (
    AnytimeState,
    WithAveragingState,
    anytime,
    averaged_params,
    with_averaging,
)
from optax_varynorm.certificates import (
    TrackRegretState,
    certified_gap,
    regret,
    regret_bound,
    track_regret,
    worst_regret,
)
from optax_varynorm.checking import check_norm
from optax_varynorm.coin_betting import (
    CoinBettingState,
    ConstrainedBetsState,
    FreeGradBettingState,
    KTBettingState,
    coin_betting,
    constrained_bets,
    freegrad_betting,
    kt_betting,
)
from optax_varynorm.domains import (
    Constraint,
    Domain,
    Projection,
    affine,
    box,
    ellipsoid,
    from_euclidean,
    half_space,
    hyperplane,
    intersection,
    l1_ball,
    l2_ball,
    linf_ball,
    non_negative,
    polyhedron,
    product,
    simplex,
    whole_space,
)
from optax_varynorm.ftrl import FTRLState, ftrl_step
from optax_varynorm.linear_optimizers import (
    diagonal_scale_invariant,
    full_matrix_scale_invariant,
    scale_invariant,
)
from optax_varynorm.norm_library import (
    GrowingInverse,
    block_diagonal_norm,
    custom_norm,
    diagonal_norm,
    feature_cover_norm,
    feature_size_norm,
    full_matrix_norm,
    full_matrix_root_norm,
    group_norm,
    lp_norm,
    max_feature_norm,
    scaled_norm,
    sum_of_norms,
)
from optax_varynorm.norms import Eigenbasis, Geometry, VaryingNorm, dual_norm, primal_norm
from optax_varynorm.optimizers import (
    diagonal,
    fixed_norm,
    full_matrix,
    full_matrix_adagrad,
    varynorm,
)
from optax_varynorm.playing import Game, play
from optax_varynorm.reductions import (
    CombineState,
    ProjectState,
    ScaleByCoinBettingState,
    WithVaryingNormState,
    combine,
    per_block,
    per_coordinate,
    project,
    scale_by_coin_betting,
    with_varying_norm,
)
from optax_varynorm.two_calls import OnlineLearner, OnlineLearnerState, predict_then_update

__version__ = "0.1.0"

__all__ = [
    "AnytimeState",
    "CoinBettingState",
    "CombineState",
    "ConstrainedBetsState",
    "Constraint",
    "Domain",
    "Eigenbasis",
    "FTRLState",
    "FreeGradBettingState",
    "Game",
    "Geometry",
    "GrowingInverse",
    "KTBettingState",
    "OnlineLearner",
    "OnlineLearnerState",
    "ProjectState",
    "Projection",
    "ScaleByCoinBettingState",
    "TrackRegretState",
    "VaryingNorm",
    "WithAveragingState",
    "WithVaryingNormState",
    "affine",
    "anytime",
    "averaged_params",
    "block_diagonal_norm",
    "box",
    "certificates",
    "certified_gap",
    "check_norm",
    "coin_betting",
    "combine",
    "constrained_bets",
    "custom_norm",
    "diagonal",
    "diagonal_norm",
    "diagonal_scale_invariant",
    "dual_norm",
    "ellipsoid",
    "feature_cover_norm",
    "feature_size_norm",
    "fixed_norm",
    "freegrad_betting",
    "from_euclidean",
    "ftrl_step",
    "full_matrix",
    "full_matrix_adagrad",
    "full_matrix_norm",
    "full_matrix_root_norm",
    "full_matrix_scale_invariant",
    "group_norm",
    "half_space",
    "hyperplane",
    "intersection",
    "kt_betting",
    "l1_ball",
    "l2_ball",
    "linf_ball",
    "lp_norm",
    "max_feature_norm",
    "non_negative",
    "per_block",
    "per_coordinate",
    "play",
    "polyhedron",
    "predict_then_update",
    "primal_norm",
    "product",
    "project",
    "regret",
    "regret_bound",
    "scale_by_coin_betting",
    "scale_invariant",
    "scaled_norm",
    "simplex",
    "sum_of_norms",
    "track_regret",
    "varynorm",
    "whole_space",
    "with_averaging",
    "with_varying_norm",
    "worst_regret",
]
