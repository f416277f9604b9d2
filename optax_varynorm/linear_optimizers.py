"""Ready-made optimizers of linear models, whose predictions do not depend on units.

Their ``update`` takes ``features``, this example's, and ``next_features``, those of the next one:
``vn.predict_then_update`` makes two calls of it that need no look into the future. The gradient is
that of a loss whose slope in the prediction is at most one, times the features.
"""

import optax

from optax_varynorm.coin_betting import coin_betting, freegrad_betting
from optax_varynorm.ftrl import ftrl_step
from optax_varynorm.learners import Certified, CoordinateLearner
from optax_varynorm.norm_library import feature_cover_norm, feature_size_norm, max_feature_norm
from optax_varynorm.norms import VaryingNorm
from optax_varynorm.optimizers import ScaleLearner, choose_by_size
from optax_varynorm.reductions import (
    anchored,
    around_average,
    combine,
    per_coordinate,
    scale_by_coin_betting,
    with_varying_norm,
)

# What the matrix may lose, each feature's learner, and the average, in units of `epsilon`.
# `python -m benchmarks.leave_one_out` is how they were chosen.
MATRIX_EPSILON = 30.0
FEATURE_EPSILON = 0.3
AVERAGE_EPSILON = 10.0


def scale_invariant(
    epsilon=1.0, scale_learner: ScaleLearner | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""The default for linear models: a full matrix by coordinate, combined with Algorithm 3.

    Predictions do not depend on the units of the features. Both play around the average of the
    points so far (``around_average``). The matrix (``feature_cover_norm("coordinate")``) and the
    average take part while there are at most 512 parameters, which is decided by their shapes:
    O(d^2) a round. Beyond, it is Algorithm 3 alone, O(d), and with sparse rows O(nonzeros)
    (``sparse_predict_then_update``).

    Args:
      epsilon: a loss that does not hurt. The regret against the starting point is at most 30 times
        that, 0.3 times that more for each feature, and ten times that more, times the root of one
        plus the sum of the squared slopes, for the average.
      scale_learner: the bettor, a function of epsilon such as ``vn.coin_betting``;
        ``vn.freegrad_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.scale_invariant()
    >>> weights, features, next_features = jnp.zeros(2), jnp.array([1.0, 3e6]), jnp.zeros(2)
    >>> state = optimizer.init(weights)
    >>> step, state = optimizer.update(
    ...     -0.5 * features, state, weights, features=features, next_features=next_features
    ... )
    """
    scale_learner = freegrad_betting if scale_learner is None else scale_learner
    diagonal = diagonal_scale_invariant(FEATURE_EPSILON * epsilon, scale_learner=scale_learner)
    cover = _learn(feature_cover_norm("coordinate"), MATRIX_EPSILON * epsilon, scale_learner)
    features, _ = _a_learner_a_feature(False, FEATURE_EPSILON * epsilon, scale_learner)
    both = around_average(combine(cover, features), AVERAGE_EPSILON * epsilon)
    return choose_by_size(with_matrix=anchored(both), without=diagonal)


def diagonal_scale_invariant(
    epsilon=1.0, with_gradients: bool = False, scale_learner: ScaleLearner | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""Algorithm 3 (``alg:diagscale``): one learner a feature, in units of its largest value.

    Regret :math:`\tilde O\big(\sum_i \epsilon + |u_i| m_{T,i} \sqrt{\sum_t \nabla_t^2
    f_{t,i}^2 / m_{t,i}^2}\big)` (``thm:diagscale``). O(d) a round.

    Args:
      epsilon: the largest regret of each feature's learner against the starting point, in units of
        loss.
      with_gradients: run one-dimensional copies of Algorithm 4 instead, which replace
        :math:`m_T^2 \sum_t \nabla_t^2 f_t^2 / m_t^2` by :math:`m_T^2 + \sum_t \nabla_t^2 f_t^2`:
        better when features grow with time.
      scale_learner: the bettor, a function of epsilon such as ``vn.freegrad_betting``;
        ``vn.coin_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.diagonal_scale_invariant()
    >>> state = optimizer.init(jnp.zeros(2))
    """
    scale_learner = coin_betting if scale_learner is None else scale_learner
    learner, parts = _a_learner_a_feature(with_gradients, epsilon, scale_learner)
    optimizer = anchored(learner)
    return Certified(optimizer, optimizer.slack, coordinate_learner=lambda size: parts)


def full_matrix_scale_invariant(
    epsilon=1.0,
    cover: str = "ellipsoid",
    capacity: int | None = None,
    scale_learner: ScaleLearner | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Algorithm 4 (``alg:scale``): no invertible linear map of the features changes a prediction.

    Args:
      epsilon: the largest regret against the starting point, in units of loss.
      cover: ``"ellipsoid"``: one matrix, O(d^2) a round, with a proof
        (``feature_cover_norm("span")``). ``"max"``: the paper's norm to the letter
        (``max_feature_norm``), whose proof has a gap, and which is slow.
      capacity: for ``cover="max"``, how many different feature vectors it can hold.
      scale_learner: the bettor, a function of epsilon such as ``vn.freegrad_betting``;
        ``vn.coin_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.full_matrix_scale_invariant()
    >>> state = optimizer.init(jnp.zeros(2))
    """
    if cover not in ("ellipsoid", "max"):
        raise ValueError(f"`cover` must be 'ellipsoid' or 'max', not {cover!r}.")
    if (cover == "max") != (capacity is not None):
        raise ValueError(
            "`capacity`, the number of feature vectors to keep, goes with `cover='max'`, which "
            "needs it: such as `capacity=1000` for a thousand examples."
        )
    norm = feature_cover_norm("span") if capacity is None else max_feature_norm(capacity)
    return anchored(_learn(norm, epsilon, scale_learner))


def _a_learner_a_feature(with_gradients, epsilon, scale_learner):
    """Algorithm 3, and the parts of it that each feature has of its own."""
    parts = CoordinateLearner(feature_size_norm(with_gradients), scale_learner(epsilon))
    learner = scale_by_coin_betting(ftrl_step(), parts.scale_learner)
    # Units are those of the features, which are known beforehand.
    by_feature = per_coordinate(with_varying_norm(parts.norm, learner), smallest_first=0.0)
    return by_feature, parts


def _learn(norm: VaryingNorm, epsilon, scale_learner) -> optax.GradientTransformation:
    """Algorithm 1 (``alg:1dred``), which is Algorithm 2 (``alg:varynorm``) on the whole space."""
    scale_learner = coin_betting if scale_learner is None else scale_learner
    return with_varying_norm(norm, scale_by_coin_betting(ftrl_step(), scale_learner(epsilon)))
