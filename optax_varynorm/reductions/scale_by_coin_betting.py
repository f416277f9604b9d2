"""From a direction and a scale to a point (Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.certificates.bettor_bound import bettor_bound, coins_refused, wealth_rounding
from optax_varynorm.certificates.certified import Certified, displacement_of, most_lost_of
from optax_varynorm.certificates.compensated import CompensatedSum
from optax_varynorm.coin_betting import coin_betting


class ScaleByCoinBettingState(NamedTuple):
    r"""Attributes:
    direction: ``x_t``, what the direction learner plays, around zero.
    scale: ``y_t``, what the scale learner plays.
    charged: :math:`\sum_i \langle g_i, y_i x_i\rangle`, what the gradients received cost so far.
    direction_state: state of the direction learner.
    scale_state: state of the scale learner.
    """

    direction: optax.Params
    scale: jax.Array
    charged: CompensatedSum
    direction_state: optax.OptState
    scale_state: optax.OptState


def scale_by_coin_betting(
    direction_learner: optax.GradientTransformation,
    scale_learner: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""``alg:1dred``: play the displacement :math:`z_t = y_t x_t` and learn both factors.

    The direction learner receives :math:`g_t`, the scale learner
    :math:`s_t = \langle g_t, x_t\rangle`. Regrets add up (``thm:1dred``), because

    .. math::
       \langle g_t, y_t x_t - u\rangle
       = s_t (y_t - \|u\|) + \|u\| \langle g_t, x_t - u/\|u\|\rangle.

    The update is :math:`z_{t+1} - z_t`.

    Args:
      direction_learner: plays in the current unit ball, ``ftrl_step()`` in the paper; any Optax
        optimizer may stand here, and starts at zero.
      scale_learner: any Optax optimizer of one number, ``coin_betting()`` in the paper and by
        default.

    >>> import optax_varynorm as vn
    >>> bettor = vn.freegrad_betting(epsilon=1.0)
    >>> learner = vn.scale_by_coin_betting(vn.ftrl_step(), bettor)
    >>> optimizer = vn.with_varying_norm(vn.full_matrix_norm(), learner)
    """
    most_lost, told_direction = most_lost_of(direction_learner), displacement_of(direction_learner)
    direction_learner = optax.with_extra_args_support(direction_learner)
    scale_learner = coin_betting() if scale_learner is None else scale_learner
    told_scale = displacement_of(scale_learner)
    scale_learner = optax.with_extra_args_support(scale_learner)

    def init(params):
        scale = jnp.zeros((), _precision.working_dtype(params))
        return ScaleByCoinBettingState(
            direction=optax.tree.zeros_like(params),
            scale=scale,
            charged=CompensatedSum.zeros_like(scale),
            direction_state=direction_learner.init(optax.tree.zeros_like(params)),
            scale_state=scale_learner.init(jnp.zeros_like(scale)),
        )

    def update(updates, state, params, *, geometry=None, **extra_args):
        del params
        coin = _precision.inner(updates, state.direction)
        direction_step, direction_state = direction_learner.update(
            updates, state.direction_state, state.direction, geometry=geometry, **extra_args
        )
        if told_direction is None:
            direction = optax.tree.add(state.direction, direction_step)
        else:
            # Not by adding: a norm may grow by many decades in one round, and the direction shrink.
            direction = told_direction(direction_state, updates, geometry)
        # The norm is one of the whole space: it means nothing to the one-dimensional learner.
        scale_step, scale_state = scale_learner.update(
            coin, state.scale_state, state.scale, **extra_args
        )
        scale = state.scale + scale_step
        if told_scale is not None:
            scale = told_scale(scale_state, scale)
        step = jax.tree.map(
            lambda x, old: scale * x - state.scale * old, direction, state.direction
        )
        return step, ScaleByCoinBettingState(
            direction=direction,
            scale=scale,
            charged=state.charged.plus(coin * state.scale),
            direction_state=direction_state,
            scale_state=scale_state,
        )

    def slack(state, comparator, norm=None, norm_state=None):
        # thm:1dred: the bettor's regret against the length, and the direction learner's.
        length, most_lost_by_direction = most_lost(
            state.direction_state, comparator, norm, norm_state
        )
        charged = state.charged.value()
        regret = bettor_bound(state.scale_state, length)
        digits = 8 * float(jnp.finfo(charged.dtype).eps) * (jnp.abs(charged) + jnp.abs(regret))
        found = regret + wealth_rounding(state.scale_state, charged) + digits
        # Coins that were cut (no norm kept the gradients short) cost more than the bettor knows.
        refused = coins_refused(state.scale_state) > 0
        return jnp.where(refused, jnp.inf, found + (most_lost_by_direction - charged))

    def displacement(state, params):
        del params
        return optax.tree.scale(state.scale, state.direction)

    return Certified(
        _precision.in_working_precision("scale_by_coin_betting", init, update),
        slack,
        displacement=displacement,
    )
