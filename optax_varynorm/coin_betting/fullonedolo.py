"""The paper's one-dimensional parameter-free learner."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.coin_betting import wealth
from optax_varynorm.coin_betting.wealth_bounds import coin_betting_bound

# The bettor stakes at most half of its wealth, so that no coin in [-1, 1] can ruin it.
LARGEST_FRACTION = 0.5
# In units of z^2 <= 4: the regularizer's start, so that 5 + (sum before z_t) >= 1 + (sum with z_t).
REGULARIZER_START = 5.0


class CoinBettingState(NamedTuple):
    """Trees shaped like the parameters, one bettor a coordinate, and a few scalars.

    Attributes:
      log_initial_wealth: ``log(epsilon)``, a scalar.
      log_wealth: logarithm of the bettor's money, ``log(epsilon)`` at first.
      bet_fraction: signed part of the wealth that is at stake now, in [-1/2, 1/2].
      slope_sum: sum of the slopes ``z_t`` of the logarithmic losses.
      squared_slope_sum: sum of their squares.
      squared_coin_sum: sum of the squared coins.
      regularizer_strength: ``Z``, a scalar.
      coins_out_of_range: number of coins that were outside [-1, 1] by more than rounding, and
        counted as -1 or 1, or that were NaN, and counted as 0.
      wealth_saturations: number of times that a wealth was cut at the largest one allowed.
    """

    log_initial_wealth: jax.Array
    log_wealth: optax.Params
    bet_fraction: optax.Params
    slope_sum: optax.Params
    squared_slope_sum: optax.Params
    squared_coin_sum: optax.Params
    regularizer_strength: jax.Array
    coins_out_of_range: jax.Array
    wealth_saturations: jax.Array


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

    Parameters that are not scalars get one bettor each. ``certificates.thm_fullonedolo`` bounds
    the regret for ``Z = 1``, ``certificates.coin_betting_bound`` for every ``Z``.

    Args:
      epsilon: initial wealth, and so the regret against the starting point, in units of loss.
      Z: strength of the regularizer, in (0, 1]; the bound of ``thm:fullonedolo`` is for 1.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> bettor = vn.coin_betting(epsilon=1.0)
    >>> state = bettor.init(jnp.zeros(()))
    >>> step, state = bettor.update(jnp.array(-1.0), state, jnp.zeros(()))
    >>> print(f"{step:.4f}")
    0.1667
    """
    _arguments.require(
        Z, lambda number: (number > 0) & (number <= 1), f"`Z` must lie in (0, 1], not be {Z}."
    )

    def start(params, common):
        return CoinBettingState(
            **common,
            slope_sum=optax.tree.zeros_like(params),
            squared_slope_sum=optax.tree.zeros_like(params),
            squared_coin_sum=optax.tree.zeros_like(params),
            regularizer_strength=jnp.array(Z, _precision.working_dtype(params)),
        )

    def choose_fraction(state, coin):
        slope = jax.tree.map(lambda c, v: c / (1 - c * v), coin, state.bet_fraction)
        slope_sum = optax.tree.add(state.slope_sum, slope)
        squared_slope_sum = jax.tree.map(lambda q, z: q + z**2, state.squared_slope_sum, slope)
        bet_fraction = jax.tree.map(
            lambda total, squares: jnp.clip(
                -total / (state.regularizer_strength * (REGULARIZER_START + squares)),
                -LARGEST_FRACTION,
                LARGEST_FRACTION,
            ),
            slope_sum,
            squared_slope_sum,
        )
        return state._replace(
            bet_fraction=bet_fraction,
            slope_sum=slope_sum,
            squared_slope_sum=squared_slope_sum,
            squared_coin_sum=jax.tree.map(lambda q, c: q + c**2, state.squared_coin_sum, coin),
        )

    def regret_bound(state, comparator, initial_wealth):
        return jax.tree.map(
            lambda u, q, z: coin_betting_bound(u, q, initial_wealth, state.regularizer_strength, z),
            comparator,
            state.squared_coin_sum,
            state.squared_slope_sum,
        )

    return wealth.bettor("coin_betting", epsilon, start, choose_fraction, regret_bound)
