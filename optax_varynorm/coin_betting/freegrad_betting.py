"""The potential of FreeGrad, as a bettor."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm.coin_betting import wealth
from optax_varynorm.coin_betting.wealth_bounds import freegrad_betting_bound


class FreeGradBettingState(NamedTuple):
    """Trees shaped like the parameters, one bettor a coordinate, and a few scalars.

    Attributes:
      log_initial_wealth: ``log(epsilon)``, a scalar.
      log_wealth: logarithm of the bettor's money, ``log(epsilon)`` at first.
      bet_fraction: signed part of the wealth that is at stake now, in (-1/2, 1/2).
      coin_sum: sum of the coins.
      squared_coin_sum: sum of their squares.
      coins_out_of_range: number of coins that were outside [-1, 1] by more than rounding, and
        counted as -1 or 1, or that were NaN, and counted as 0.
      wealth_saturations: number of times that a wealth was cut at the largest one allowed.
    """

    log_initial_wealth: jax.Array
    log_wealth: optax.Params
    bet_fraction: optax.Params
    coin_sum: optax.Params
    squared_coin_sum: optax.Params
    coins_out_of_range: jax.Array
    wealth_saturations: jax.Array


def freegrad_betting(epsilon=1.0) -> optax.GradientTransformationExtraArgs:
    r"""Mhammedi and Koolen, *Lipschitz and Comparator-Norm Adaptivity in Online Learning* (COLT
    2020), with the Lipschitz bound 1 known: the potential

    .. math::
       \Psi(G, V) = \frac{\epsilon}{\sqrt V} \exp\frac{G^2}{2 V + 2 |G|},
       \qquad G_t = \sum_i g_i, \quad V_t = 1 + \sum_i g_i^2,

    satisfies :math:`\Psi(G + g, V + g^2) \le \Psi(G, V) + g\, \partial_G \Psi(G, V)` for all
    ``g`` in [-1, 1]. FreeGrad plays :math:`-\partial_G\Psi`. Here the same fraction of the wealth
    that is really there is staked,

    .. math::
       v = -\frac{\partial_G \Psi}{\Psi} = -\frac{G (2 V + |G|)}{2 (V + |G|)^2}
         = -\tfrac12 s (2 - |s|), \qquad s = \frac{G}{V + |G|},

    always less than half of it. By induction the wealth stays above :math:`\Psi`, so FreeGrad's
    bound holds, with what the inequality wastes reinvested. ``regret.freegrad_betting_bound`` is
    that bound with the leading constant :math:`\sqrt2`, where ``thm:fullonedolo`` has
    :math:`2\sqrt3`.

    Args:
      epsilon: initial wealth, and so the regret against the starting point, in units of loss.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> bettor = vn.freegrad_betting(epsilon=1.0)
    >>> state = bettor.init(jnp.zeros(()))
    >>> step, state = bettor.update(jnp.array(-1.0), state, jnp.zeros(()))
    >>> print(f"{step:.4f}")
    0.2778
    """

    def start(params, common):
        return FreeGradBettingState(
            **common,
            coin_sum=optax.tree.zeros_like(params),
            squared_coin_sum=optax.tree.zeros_like(params),
        )

    def choose_fraction(state, coin):
        coin_sum = optax.tree.add(state.coin_sum, coin)
        squared_coin_sum = jax.tree.map(lambda q, c: q + c**2, state.squared_coin_sum, coin)
        return state._replace(
            bet_fraction=jax.tree.map(_fraction, coin_sum, squared_coin_sum),
            coin_sum=coin_sum,
            squared_coin_sum=squared_coin_sum,
        )

    def regret_bound(state, comparator, initial_wealth):
        return jax.tree.map(
            lambda u, q: freegrad_betting_bound(u, q, initial_wealth),
            comparator,
            state.squared_coin_sum,
        )

    return wealth.bettor("freegrad_betting", epsilon, start, choose_fraction, regret_bound)


def _fraction(coin_sum, squared_coin_sum):
    share = coin_sum / (1 + squared_coin_sum + jnp.abs(coin_sum))
    return -share * (1 - jnp.abs(share) / 2)
