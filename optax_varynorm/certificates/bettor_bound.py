"""The bound of whichever one-dimensional learner was used, from its state alone."""

import functools

import jax
import jax.numpy as jnp
import optax

from optax_varynorm.certificates.wealth_bounds import (
    coin_betting_bound,
    constraint_cost,
    freegrad_betting_bound,
    kt_betting_bound,
)
from optax_varynorm.coin_betting import (
    CoinBettingState,
    ConstrainedBetsState,
    FreeGradBettingState,
    KTBettingState,
)


@functools.singledispatch
def bettor_bound(scale_state, comparator, squared_gradient_sum=None) -> optax.Params:
    r"""An upper bound on :math:`\sum_t g_t (w_t - u)`, read off the learner's state.

    The state knows the initial wealth, the sums of the coins and their sizes, and what the
    learner's own theorem needs besides, so neither the stream nor the learner has to be at hand.
    Elementwise: each coordinate is a game of its own, and the regret of a tree is at most the sum
    of all of them.

    The bound is for the coins that the learner counted, those in ``coins_out_of_range`` after they
    were cut. It is infinite if a wealth saturated (``wealth_saturations``): no theorem covers
    winnings that were given away. Under ``vmap`` it batches like any function of arrays.

    A learner of your own joins with ``bettor_bound.register(ItsState)``.

    Args:
      scale_state: state of ``coin_betting``, ``kt_betting``, ``freegrad_betting``, or of
        ``constrained_bets`` around one of them.
      comparator: ``u - w_1``, an array or a tree like the learner's parameters.
      squared_gradient_sum: an upper bound on :math:`\sum_t g_t^2` to use in place of the state's
        own sum, of the comparator's structure. ``kt_betting`` has no use for it.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> bettor = vn.freegrad_betting(epsilon=0.5)
    >>> _, state = bettor.update(jnp.array(-1.0), bettor.init(jnp.zeros(())), jnp.zeros(()))
    >>> print(f"{vn.certificates.bettor_bound(state, jnp.array(2.0)):.2f}")  # against u = 2
    9.26
    """
    raise NotImplementedError(
        f"No regret bound is known for a learner whose state is a {type(scale_state).__name__}. "
        "Use `coin_betting`, `kt_betting`, `freegrad_betting` or `constrained_bets` around one of "
        "them, or register a bound of your own with `certificates.bettor_bound.register`."
    )


@bettor_bound.register
def _(state: CoinBettingState, comparator, squared_gradient_sum=None):
    squares = state.squared_coin_sum if squared_gradient_sum is None else squared_gradient_sum
    return _unless_saturated(
        state,
        lambda u, q, z: coin_betting_bound(
            u, q, jnp.exp(state.log_initial_wealth), state.regularizer_strength, z
        ),
        comparator,
        squares,
        state.squared_slope_sum,
    )


@bettor_bound.register
def _(state: KTBettingState, comparator, squared_gradient_sum=None):
    return _unless_saturated(
        state,
        lambda u, n: kt_betting_bound(u, n, jnp.exp(state.log_initial_wealth)),
        comparator,
        state.coin_size_sum,
    )


@bettor_bound.register
def _(state: FreeGradBettingState, comparator, squared_gradient_sum=None):
    squares = state.squared_coin_sum if squared_gradient_sum is None else squared_gradient_sum
    return _unless_saturated(
        state,
        lambda u, q: freegrad_betting_bound(u, q, jnp.exp(state.log_initial_wealth)),
        comparator,
        squares,
    )


@bettor_bound.register
def _(state: ConstrainedBetsState, comparator, squared_gradient_sum=None):
    return jax.tree.map(
        lambda bound, u, withheld: bound + constraint_cost(u, state.initial_radius, withheld),
        bettor_bound(state.bettor_state, comparator, squared_gradient_sum),
        comparator,
        state.withheld_coin_size_sum,
    )


def _unless_saturated(state, bound, comparator, *sums):
    return jax.tree.map(
        lambda *leaves: jnp.where(state.wealth_saturations > 0, jnp.inf, bound(*leaves)),
        comparator,
        *sums,
    )


def wealth_rounding(scale_state, charged: jax.Array) -> jax.Array:
    r"""How much more was charged than the wealth knows of, by rounding of its logarithm.

    :math:`\epsilon - \mathrm{Wealth}_T` is what a bettor was charged, in exact numbers.
    """
    if not isinstance(scale_state, CoinBettingState | KTBettingState | FreeGradBettingState):
        return jnp.zeros_like(charged)
    lost = jnp.exp(scale_state.log_initial_wealth) - jnp.exp(scale_state.log_wealth)
    return jnp.maximum(charged - lost, 0)


def coins_refused(scale_state) -> jax.Array:
    """How many coins a bettor has cut, wherever it counts them."""
    counts = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(scale_state)
        if "out_of_range" in jax.tree_util.keystr(path)
    ]
    return functools.reduce(jnp.add, counts, jnp.zeros((), jnp.int32))
