"""From a direction and a scale to a point (Algorithm 1)."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.certificates.compensated import CompensatedSum
from optax_varynorm.coin_betting import coin_betting
from optax_varynorm.learners import Certified, displacement, telling


class ScaleByCoinBettingState(NamedTuple):
    r"""Attributes:
    charged: :math:`\sum_i \langle g_i, y_i x_i\rangle`, what the gradients received cost so far.
    direction_state: state of the direction learner, which tells ``x_t``.
    scale_state: state of the scale learner, which tells ``y_t``.
    """

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
    direction_learner = telling(direction_learner)
    scale_learner = telling(coin_betting() if scale_learner is None else scale_learner)

    def factors(state, like, *norm):
        """``x_t``, and ``y_t``, by what the learners know: their steps add up to less precise ones.

        A norm may grow by many decades in one round. What is left of a direction would then be lost
        in the last digits of what it was.
        """
        number = jnp.zeros((), _precision.working_dtype(like))
        return (
            displacement(direction_learner, state.direction_state, like, *norm),
            displacement(scale_learner, state.scale_state, number),
        )

    def init(params):
        number = jnp.zeros((), _precision.working_dtype(params))
        return ScaleByCoinBettingState(
            charged=CompensatedSum.zeros_like(number),
            direction_state=direction_learner.init(optax.tree.zeros_like(params)),
            scale_state=scale_learner.init(number),
        )

    def update(updates, state, params, *, geometry=None, **extra_args):
        before, after = ((), ()) if geometry is None else geometry.sides()
        direction, scale = factors(state, params, *before)
        coin = _precision.inner(updates, direction)
        _, direction_state = direction_learner.update(
            updates, state.direction_state, direction, geometry=geometry, **extra_args
        )
        # The norm is one of the whole space: it means nothing to the one-dimensional learner.
        _, scale_state = scale_learner.update(coin, state.scale_state, scale, **extra_args)
        new = ScaleByCoinBettingState(
            state.charged.plus(coin * scale), direction_state, scale_state
        )
        return optax.tree.sub(point(new, params, *after), optax.tree.scale(scale, direction)), new

    def slack(state, comparator, norm=None, norm_state=None):
        # thm:1dred: the bettor's regret against the length, and the direction learner's.
        length, most_lost_by_direction = direction_learner.most_lost(
            state.direction_state, comparator, norm, norm_state
        )
        charged = state.charged.value()
        regret = scale_learner.most_lost(state.scale_state, length, charged)
        digits = 8 * float(jnp.finfo(charged.dtype).eps) * (jnp.abs(charged) + jnp.abs(regret))
        return regret + digits + (most_lost_by_direction - charged)

    def point(state, params, *norm):
        direction, scale = factors(state, params, *norm)
        return optax.tree.scale(scale, direction)

    return Certified(
        _precision.in_working_precision("scale_by_coin_betting", init, update),
        slack,
        displacement=point,
    )
