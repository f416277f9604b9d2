"""A linear model's learner that plays around the average of the points so far."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.learners import Certified, displacement_of, slack_of
from optax_varynorm.reductions._features import require_features


class AroundAverageState(NamedTuple):
    """Attributes:
    average_origin: ``w_1``, where the parameters started.
    followed_average: the weighted average of the points so far, as a difference to ``w_1``.
    followed_share: the part of it that is played now.
    followed_loss: what that cost so far.
    followed_weight: the sum of the squared slopes so far, which are the average's weights.
    around_state: state of the learner.
    """

    average_origin: optax.Params
    followed_average: optax.Params
    followed_share: jax.Array
    followed_loss: jax.Array
    followed_weight: jax.Array
    around_state: optax.OptState


def around_average(
    learner: optax.GradientTransformation, epsilon=1.0, stake=0.1
) -> optax.GradientTransformationExtraArgs:
    r"""Play what the learner plays, added to the average of the points before.

    Cutkosky and Orabona (*Black-box reductions for parameter-free online learning in Banach
    spaces*, COLT 2018, "Adapting to curvature"): a learner that starts from the average needs to
    find only what is left. With the slope :math:`\nabla_t` of a linear model's loss, so that
    :math:`g_t = \nabla_t f_t`, and differences to :math:`w_1` written without it,

    .. math::
       w_t = \hat w_t + \beta_t \bar w_{t-1}, \qquad
       \bar w_t = \frac{\sum_{i\le t} \nabla_i^2 w_i}{1 + \sum_{i\le t} \nabla_i^2}.

    Their domain is bounded. Here a budget takes its place: with the loss
    :math:`L_t = \sum_{i\le t} \langle g_i, \beta_i \bar w_{i-1}\rangle` and
    :math:`B_t = \epsilon \sqrt{1 + \sum_{i\le t} \nabla_i^2}`,

    .. math::
       \beta_{t+1} = \min\Big(1, \alpha \frac{B_t - L_t}{|\langle f_{t+1}, \bar w_t\rangle|}\Big),

    where the features are known before the prediction. A round costs at most a part
    :math:`\alpha < 1` of what is left of the budget, which never shrinks, so :math:`L_T \le B_T`
    whatever the stream. Losses are linear, hence

    .. math:: R_T(u) = \hat R_T(u) + L_T \le \hat R_T(u) + \epsilon \sqrt{1 + \sum_t \nabla_t^2}.

    The budget grows because the predictions of a good model are right on average only: what they
    win and lose is a sum of independent errors, as large as its root. ``regret_bound`` has
    :math:`L_T` itself. O(d) a round.

    Args:
      learner: a learner of a linear model, such as ``vn.diagonal_scale_invariant()``.
      epsilon: what the average may lose in units of loss, times the root of one plus the sum of
        the squared slopes.
      stake: the part of what is left of that which a round may cost at most.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.around_average(vn.diagonal_scale_invariant())
    >>> state = optimizer.init(jnp.zeros(2))
    """
    _arguments.require_moderate("epsilon", epsilon, "what the average may lose")
    learner_slack, learner_displacement = slack_of(learner), displacement_of(learner)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        dtype = _precision.working_dtype(params)
        return AroundAverageState(
            average_origin=params,
            followed_average=optax.tree.zeros_like(params),
            followed_share=jnp.zeros((), dtype),
            followed_loss=jnp.zeros((), dtype),
            followed_weight=jnp.zeros((), dtype),
            around_state=learner.init(params),
        )

    def update(updates, state, params, **extra_args):
        features, next_features = require_features(extra_args, params)
        learner_step, around_state = learner.update(
            updates, state.around_state, params, **extra_args
        )

        is_usable = _precision.is_summable(updates)
        gradient = jax.tree.map(lambda g: jnp.where(is_usable, g, 0), updates)
        cost = state.followed_share * _precision.inner(gradient, state.followed_average)
        loss = state.followed_loss + jnp.where(jnp.isfinite(cost), cost, 0)
        squared_slope = _squared_slope(gradient, features)
        weight = state.followed_weight + squared_slope
        average = jax.tree.map(
            lambda mean, w, origin: mean + squared_slope / (1 + weight) * (w - origin - mean),
            state.followed_average,
            params,
            state.average_origin,
        )
        left = jnp.asarray(epsilon, weight.dtype) * jnp.sqrt(1 + weight) - loss
        most = jnp.asarray(stake, weight.dtype) * jnp.maximum(left, 0)
        score = jnp.abs(_precision.inner(next_features, average))
        # A score that is no number is played at nothing.
        share = jnp.where(score <= most, 1, _precision.ratio(most, score))
        share = jnp.where(jnp.isfinite(score), share, 0)
        # Features that are zero, as after the last row, say nothing about what is left.
        share = jnp.where(score == 0, state.followed_share, share)
        step = jax.tree.map(
            lambda step, new, old: step + (share * new - state.followed_share * old),
            learner_step,
            average,
            state.followed_average,
        )
        return step, AroundAverageState(
            average_origin=state.average_origin,
            followed_average=average,
            followed_share=share,
            followed_loss=loss,
            followed_weight=weight,
            around_state=around_state,
        )

    def slack(state, comparator, *_):
        # What the average lost is part of the loss, and no business of the learner's.
        return learner_slack(state.around_state, comparator)

    def displacement(state, params, *geometry):
        assert learner_displacement is not None
        own = learner_displacement(state.around_state, params, *geometry)
        return optax.tree.add_scale(own, state.followed_share, state.followed_average)

    return Certified(
        _precision.in_working_precision("around_average", init, update),
        slack,
        displacement=learner_displacement and displacement,
    )


def _squared_slope(gradient, features) -> jax.Array:
    """The factor between the two, squared: it is the same in all coordinates, up to rounding."""
    sizes = jax.tree.map(_precision.size, features)
    squares = jax.tree.map(lambda g, f: jnp.sum(_precision.ratio(g, f) ** 2), gradient, sizes)
    counts = jax.tree.map(lambda f: jnp.sum(f > 0, dtype=f.dtype), sizes)
    total, count = (
        functools.reduce(
            jnp.add, jax.tree.leaves(tree), jnp.zeros((), _precision.working_dtype(gradient))
        )
        for tree in (squares, counts)
    )
    square = total / jnp.maximum(count, 1)
    # What is no number, as the features may be, has no weight.
    return jnp.where(square >= 0, jnp.minimum(square, 1), 0)
