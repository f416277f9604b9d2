"""The bettor of Krichevsky and Trofimov."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm.coin_betting import wealth
from optax_varynorm.coin_betting.wealth_bounds import kt_betting_bound


class KTBettingState(NamedTuple):
    """Trees shaped like the parameters, one bettor a coordinate, and a few scalars.

    Attributes:
      log_initial_wealth: ``log(epsilon)``, a scalar.
      log_wealth: logarithm of the bettor's money, ``log(epsilon)`` at first.
      bet_fraction: signed part of the wealth that is at stake now, in (-1, 1).
      coin_sum: sum of the coins.
      coin_size_sum: sum of their absolute values.
      coins_out_of_range: number of coins that were outside [-1, 1] by more than rounding, and
        counted as -1 or 1, or that were NaN, and counted as 0.
      wealth_saturations: number of times that a wealth was cut at the largest one allowed.
    """

    log_initial_wealth: jax.Array
    log_wealth: optax.Params
    bet_fraction: optax.Params
    coin_sum: optax.Params
    coin_size_sum: optax.Params
    coins_out_of_range: jax.Array
    wealth_saturations: jax.Array


def kt_betting(epsilon=1.0) -> optax.GradientTransformationExtraArgs:
    r"""Orabona and Pal, *Coin Betting and Parameter-Free Online Learning* (NeurIPS 2016): stake

    .. math:: v_{t+1} = \frac{-\sum_i g_i}{1 + n_t}, \qquad n_t = \sum_i |g_i|.

    They divide by :math:`1 + t`. For coins of size one that is the same; for smaller ones it bets
    less, and a zero coin changes the state. The count of sizes needs no new proof: with the share
    of heads ``a`` and tails ``b``, ``a + b = n``, the potential
    :math:`\Psi(a, b) = 2^n\, \Gamma(a + \frac12) \Gamma(b + \frac12) / (\pi\, \Gamma(n + 1))` has
    :math:`\Psi(a + 1, b) = (1 + v) \Psi(a, b)`, and :math:`\log\Psi(a + \delta, b)` is convex in
    :math:`\delta` (the trigamma function decreases), so that
    :math:`\Psi(a + \delta, b) / \Psi(a, b) \le (1 + v)^\delta \le 1 + \delta v`: the wealth is
    never below :math:`\epsilon \Psi`. ``regret.kt_betting_bound`` follows.

    It may stake nearly everything, so it runs away fastest when all coins agree, and pays most
    when they turn. Its regret grows with :math:`\sum_t |g_t|` rather than
    :math:`\sum_t g_t^2`, which is larger when coins are small.

    Args:
      epsilon: initial wealth, and so the regret against the starting point, in units of loss.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> bettor = vn.kt_betting(epsilon=1.0)
    >>> state = bettor.init(jnp.zeros(()))
    >>> step, state = bettor.update(jnp.array(-1.0), state, jnp.zeros(()))
    >>> print(f"{step:.4f}")
    0.5000
    """

    def start(params, common):
        return KTBettingState(
            **common,
            coin_sum=optax.tree.zeros_like(params),
            coin_size_sum=optax.tree.zeros_like(params),
        )

    def choose_fraction(state, coin):
        coin_sum = optax.tree.add(state.coin_sum, coin)
        coin_size_sum = jax.tree.map(lambda n, c: n + jnp.abs(c), state.coin_size_sum, coin)
        return state._replace(
            bet_fraction=jax.tree.map(_fraction, coin_sum, coin_size_sum),
            coin_sum=coin_sum,
            coin_size_sum=coin_size_sum,
        )

    def regret_bound(state, comparator, initial_wealth):
        return jax.tree.map(
            lambda u, n: kt_betting_bound(u, n, initial_wealth), comparator, state.coin_size_sum
        )

    return wealth.bettor("kt_betting", epsilon, start, choose_fraction, regret_bound)


def _fraction(coin_sum, coin_size_sum):
    # Below one in exact arithmetic; after 2^24 equal coins of float32 only the cut keeps it so.
    largest = 1 - float(jnp.finfo(coin_sum.dtype).eps)
    return jnp.clip(-coin_sum / (1 + coin_size_sum), -largest, largest)
