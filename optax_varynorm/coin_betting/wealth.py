"""What all bettors share: a wealth, a fraction of it at stake, and the settling of a coin."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.learners import Certified, most_lost_of


def largest_log_wealth(dtype) -> float:
    """Wealth saturates at the square root of the dtype's largest number (1.8e19 in float32).

    What is won above it is given away, so that a product of a wealth and a gradient, or the
    square of a wealth, is still finite.
    """
    return 0.5 * math.log(float(jnp.finfo(dtype).max))


def bettor(
    name: str,
    epsilon,
    start: Callable[[optax.Params, dict[str, Any]], Any],
    choose_fraction: Callable[[Any, optax.Updates], Any],
    regret_bound: Callable[[Any, optax.Params, Any], optax.Params],
) -> optax.GradientTransformationExtraArgs:
    r"""A learner of one number from a rule for the fraction of wealth to stake.

    It plays the displacement :math:`z_t = v_t \mathrm{Wealth}_{t-1}`, and the coin ``g_t`` in
    [-1, 1] makes

    .. math::
       \mathrm{Wealth}_t = \mathrm{Wealth}_{t-1} (1 - g_t v_t)
                         = \epsilon - \sum_{i \le t} g_i z_i.

    The wealth is a product of positive factors, so its logarithm is what the state keeps: it
    neither overflows nor becomes negative, and the regret against the starting point,
    :math:`\epsilon - \mathrm{Wealth}_T`, stays below ``epsilon``. Every operation is elementwise,
    so parameters that are not scalars get one bettor each.

    Args:
      name: for error messages.
      epsilon: initial wealth.
      start: the first state, from the parameters and the fields that all bettors have.
      choose_fraction: the state with the next ``bet_fraction``, from the one whose wealth is
        settled and whose fraction is still that of the coin, and the coin.
      regret_bound: its theorem, from a state, the comparator and the initial wealth.
    """
    _arguments.require_moderate("epsilon", epsilon, "the money a bettor starts with")

    def init(params):
        def log_epsilon():
            return jnp.log(jnp.asarray(epsilon, _precision.working_dtype(params)))

        common = {
            "log_initial_wealth": log_epsilon(),
            "log_wealth": jax.tree.map(lambda p: jnp.zeros_like(p) + log_epsilon(), params),
            "bet_fraction": optax.tree.zeros_like(params),
            "coins_out_of_range": jnp.zeros((), jnp.int32),
            "wealth_saturations": jnp.zeros((), jnp.int32),
        }
        return start(params, common)

    def update(updates, state, params, **extra_args):
        del extra_args
        limit = largest_log_wealth(_precision.working_dtype(params))
        coin = jax.tree.map(cut_coin, updates)
        log_wealth = jax.tree.map(
            lambda log, c, v: log + jnp.log1p(-c * v), state.log_wealth, coin, state.bet_fraction
        )
        settled = state._replace(
            log_wealth=jax.tree.map(lambda log: jnp.minimum(log, limit), log_wealth),
            coins_out_of_range=state.coins_out_of_range + count(is_out_of_range, updates),
            wealth_saturations=state.wealth_saturations
            + count(lambda log: log > limit, log_wealth),
        )
        new = choose_fraction(settled, coin)
        return optax.tree.sub(bet(new), bet(state)), new

    def most_lost(state, comparator, charged=None):
        initial_wealth = jnp.exp(state.log_initial_wealth)
        # No theorem covers winnings that were given away, nor coins that were cut.
        no_proof = (state.wealth_saturations > 0) | (state.coins_out_of_range > 0)
        bound = jax.tree.map(
            lambda number: jnp.where(no_proof, jnp.inf, number),
            regret_bound(state, comparator, initial_wealth),
        )
        if charged is None:
            return bound
        # In exact numbers the wealth is what it was at first, minus what was charged.
        by_rounding = charged - (initial_wealth - jnp.exp(state.log_wealth))
        return bound + jnp.maximum(by_rounding, 0)

    layer = _precision.in_working_precision(name, init, update)
    return Certified(layer, most_lost=most_lost, displacement=bet)


def bettor_bound(
    bettor: optax.GradientTransformation, state: optax.OptState, comparator: optax.Params
) -> optax.Params:
    r"""An upper bound on :math:`\sum_t g_t (w_t - u)`, read off a bettor's state.

    The state knows the initial wealth, the sums of the coins and their sizes, and what the
    bettor's own theorem needs besides, so the stream need not be at hand. Elementwise: each
    coordinate is a game of its own, and the regret of a tree is at most the sum of all of them.

    It is infinite if a wealth saturated (``wealth_saturations``) or a coin was cut
    (``coins_out_of_range``). Under ``vmap`` it batches like any function of arrays.

    Args:
      bettor: ``coin_betting``, ``kt_betting``, ``freegrad_betting``, or ``constrained_bets`` around
        one of them.
      state: its state.
      comparator: ``u - w_1``, an array or a tree like the bettor's parameters.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> bettor = vn.freegrad_betting(epsilon=0.5)
    >>> _, state = bettor.update(jnp.array(-1.0), bettor.init(jnp.zeros(())), jnp.zeros(()))
    >>> print(f"{vn.certificates.bettor_bound(bettor, state, jnp.array(2.0)):.2f}")  # u = 2
    9.26
    """
    return most_lost_of(bettor)(state, comparator)


def bet(state: Any, *_) -> optax.Params:
    """The displacement of a bettor: the fraction of its wealth that is at stake."""
    return jax.tree.map(lambda v, log: v * jnp.exp(log), state.bet_fraction, state.log_wealth)


def cut_coin(gradient: jax.Array) -> jax.Array:
    """The coin a bettor can bear: inside [-1, 1], and 0 for NaN."""
    return jnp.where(jnp.isnan(gradient), 0, jnp.clip(gradient, -1, 1))


def is_out_of_range(gradient: jax.Array) -> jax.Array:
    """Outside [-1, 1] by more than rounding explains, or NaN."""
    return ~(jnp.abs(gradient) <= 1 + _precision.rounding(gradient.dtype))


def count(condition: Callable[[jax.Array], jax.Array], tree: Any) -> jax.Array:
    """In how many coordinates of a tree a condition holds."""
    counts = [jnp.sum(condition(leaf), dtype=jnp.int32) for leaf in jax.tree.leaves(tree)]
    return sum(counts, start=jnp.zeros((), jnp.int32))
