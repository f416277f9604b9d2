"""Online learning with varying norms, as Optax gradient transformations.

>>> import jax.numpy as jnp, optax, optax_varynorm as vn
>>> optimizer = vn.full_matrix(domain=vn.half_space(jnp.ones(3), 1.0))
>>> params = jnp.zeros(3)
>>> state = optimizer.init(params)
>>> updates, state = optimizer.update(jnp.array([0.6, 0.0, -0.8]), state, params)
>>> params = optax.apply_updates(params, updates)
"""

from optax_varynorm import regret
from optax_varynorm.coin_betting import CoinBettingState, coin_betting
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
from optax_varynorm.norm_library import (
    GrowingInverse,
    diagonal_norm,
    full_matrix_norm,
    full_matrix_root_norm,
    lp_norm,
)
from optax_varynorm.norms import Eigenbasis, Geometry, VaryingNorm, dual_norm, primal_norm
from optax_varynorm.optimizers import diagonal, fixed_norm, full_matrix, full_matrix_adagrad
from optax_varynorm.playing import Game, play
from optax_varynorm.reductions import (
    ProjectState,
    ScaleByCoinBettingState,
    WithVaryingNormState,
    project,
    scale_by_coin_betting,
    with_varying_norm,
)

__version__ = "0.1.0"

__all__ = [
    "CoinBettingState",
    "Constraint",
    "Domain",
    "Eigenbasis",
    "FTRLState",
    "Game",
    "Geometry",
    "GrowingInverse",
    "ProjectState",
    "Projection",
    "ScaleByCoinBettingState",
    "VaryingNorm",
    "WithVaryingNormState",
    "affine",
    "box",
    "coin_betting",
    "diagonal",
    "diagonal_norm",
    "dual_norm",
    "ellipsoid",
    "fixed_norm",
    "from_euclidean",
    "ftrl_step",
    "full_matrix",
    "full_matrix_adagrad",
    "full_matrix_norm",
    "full_matrix_root_norm",
    "half_space",
    "hyperplane",
    "intersection",
    "l1_ball",
    "l2_ball",
    "linf_ball",
    "lp_norm",
    "non_negative",
    "play",
    "polyhedron",
    "primal_norm",
    "product",
    "project",
    "regret",
    "scale_by_coin_betting",
    "simplex",
    "whole_space",
    "with_varying_norm",
]
