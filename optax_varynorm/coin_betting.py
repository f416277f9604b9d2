"""The one-dimensional parameter-free learner."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision

# The bettor stakes at most half of its wealth, so that no coin in [-1, 1] can ruin it.
LARGEST_FRACTION = 0.5
# In units of z^2 <= 4: the regularizer's start, so that 5 + (sum before z_t) >= 1 + (sum with z_t).
REGULARIZER_START = 5.0


class CoinBettingState(NamedTuple):
    """Every field but the last is a tree shaped like the parameters, one bettor a coordinate.

    Attributes:
      bet_origin: where the parameters started; bets are placed around it.
      log_wealth: logarithm of the bettor's money, ``log(epsilon)`` at first.
      bet_fraction: signed part of the wealth that is at stake now, in [-1/2, 1/2].
      slope_sum: sum of the slopes ``z_t`` of the logarithmic losses.
      squared_slope_sum: sum of their squares.
      coins_out_of_range: number of coins that were outside [-1, 1] by more than rounding, and
        counted as -1 or 1, or that were NaN, and counted as 0.
    """

    bet_origin: optax.Params
    log_wealth: optax.Params
    bet_fraction: optax.Params
    slope_sum: optax.Params
    squared_slope_sum: optax.Params
    coins_out_of_range: jax.Array


def largest_log_wealth(dtype) -> float:
    """Wealth saturates at the square root of the dtype's largest number (1.8e19 in float32).

    What is won above it is given away, so that a product of a wealth and a gradient, or the
    square of a wealth, is still finite.
    """
    return 0.5 * math.log(float(jnp.finfo(dtype).max))


def coin_betting(epsilon=1.0, Z=1.0) -> optax.GradientTransformationExtraArgs:
    r"""``thm:fullonedolo``: bet a fraction of your wealth on the sign of the next gradient.

    With ``g_t`` in [-1, 1] and :math:`\mathrm{Wealth}_0 = \epsilon`, play
    :math:`w_{t+1} = v_{t+1} \mathrm{Wealth}_t`, where
    :math:`\mathrm{Wealth}_t = \mathrm{Wealth}_{t-1}(1 - g_t v_t) = \epsilon - \sum_i g_i w_i`. The
    fraction follows the regularized leader on the slopes :math:`z_t = g_t / (1 - g_t v_t)` of
    :math:`-\log(1 - g_t v)`, whose minimizer on [-1/2, 1/2] is explicit:

    .. math::
       v_{t+1} = \arg\min_{|v| \le 1/2} \tfrac{Z}{2}\Big(5 + \sum_i z_i^2\Big) v^2 + v \sum_i z_i
               = \mathrm{clip}\Big(\frac{-\sum_i z_i}{Z (5 + \sum_i z_i^2)}\Big).

    The wealth is a product of positive factors, so its logarithm is what the state keeps: it
    neither overflows nor becomes negative. Parameters that are not scalars get one bettor each.

    Args:
      epsilon: initial wealth, and so the regret against the starting point, in units of loss.
      Z: strength of the regularizer, in (0, 1]; the bound of ``thm:fullonedolo`` is for 1.
    """
    _arguments.require_moderate("epsilon", epsilon, "the money a bettor starts with")
    _arguments.require(
        Z, lambda number: (number > 0) & (number <= 1), f"`Z` must lie in (0, 1], not be {Z}."
    )

    def init(params):
        dtype = _precision.working_dtype(params)

        def zeros():
            return optax.tree.zeros_like(params)

        return CoinBettingState(
            bet_origin=params,
            log_wealth=optax.tree.full_like(params, jnp.log(jnp.asarray(epsilon, dtype))),
            bet_fraction=zeros(),
            slope_sum=zeros(),
            squared_slope_sum=zeros(),
            coins_out_of_range=jnp.zeros((), jnp.int32),
        )

    def update(updates, state, params, **extra_args):
        del extra_args
        dtype = _precision.working_dtype(params)
        limit = largest_log_wealth(dtype)
        strength = jnp.asarray(Z, dtype)

        coin = jax.tree.map(_coin, updates)
        payoff = jax.tree.map(lambda c, v: -c * v, coin, state.bet_fraction)
        slope = jax.tree.map(lambda c, r: c / (1 + r), coin, payoff)
        log_wealth = jax.tree.map(
            lambda log, r: jnp.minimum(log + jnp.log1p(r), limit), state.log_wealth, payoff
        )
        slope_sum = optax.tree.add(state.slope_sum, slope)
        squared_slope_sum = jax.tree.map(lambda q, z: q + z**2, state.squared_slope_sum, slope)
        bet_fraction = jax.tree.map(
            lambda total, squares: jnp.clip(
                -total / (strength * (REGULARIZER_START + squares)),
                -LARGEST_FRACTION,
                LARGEST_FRACTION,
            ),
            slope_sum,
            squared_slope_sum,
        )
        step = jax.tree.map(
            lambda origin, v, log, w: origin + v * jnp.exp(log) - w,
            state.bet_origin,
            bet_fraction,
            log_wealth,
            params,
        )
        refused = sum(jax.tree.leaves(jax.tree.map(_count_refused, updates)), start=0)
        return step, CoinBettingState(
            bet_origin=state.bet_origin,
            log_wealth=log_wealth,
            bet_fraction=bet_fraction,
            slope_sum=slope_sum,
            squared_slope_sum=squared_slope_sum,
            coins_out_of_range=state.coins_out_of_range + refused,
        )

    return _precision.in_working_precision("coin_betting", init, update)


def _coin(gradient):
    return jnp.where(jnp.isnan(gradient), 0, jnp.clip(gradient, -1, 1))


def _count_refused(gradient):
    fair = jnp.abs(gradient) <= 1 + _precision.rounding(gradient.dtype)
    return jnp.sum(~fair, dtype=jnp.int32)
