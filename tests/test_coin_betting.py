"""The one-dimensional learner of ``thm:fullonedolo``."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import optax_varynorm as vn
from tests import reference
from tests.playing import play

# One compiled game for all examples: short streams end in zeros, which change nothing.
coins = hnp.arrays(
    np.float64, 64, elements=st.floats(-1, 1), fill=st.sampled_from([0.0, 1.0, -1.0])
)
BETTORS = {epsilon: vn.coin_betting(epsilon) for epsilon in (0.01, 1.0, 100.0)}


@pytest.mark.parametrize("Z", [1.0, 0.3])
def test_coin_betting_matches_the_reference(x64, Z):
    stream = np.random.default_rng(0).uniform(-1, 0.8, size=500)
    game = play(vn.coin_betting(epsilon=0.7, Z=Z), jnp.asarray(stream), jnp.zeros(()))
    bettor = reference.CoinBetting(0.7, Z)
    bets = [bettor.play()]
    for coin in stream:
        bettor.receive(coin)
        bets.append(bettor.play())
    np.testing.assert_allclose(game.points, bets, rtol=1e-9)


@given(coins, st.sampled_from([*BETTORS]))
def test_wealth_is_epsilon_minus_the_sum_of_losses(stream, epsilon):
    with jax.enable_x64(True):
        game = play(BETTORS[epsilon], jnp.asarray(stream), jnp.zeros(()))
        wealth = np.exp(game.states.log_wealth)
        identity = epsilon - np.concatenate([[0.0], np.cumsum(stream * game.points[:-1])])
        np.testing.assert_allclose(wealth, identity, rtol=1e-9, atol=1e-9 * np.max(wealth))
        assert np.all(np.abs(game.states.bet_fraction) <= 0.5)


@given(coins, st.floats(-1e6, 1e6), st.sampled_from([*BETTORS]))
def test_regret_stays_below_thm_fullonedolo(stream, comparator, epsilon):
    with jax.enable_x64(True):
        game = play(BETTORS[epsilon], jnp.asarray(stream), jnp.zeros(()))
        regret = np.sum(stream * (game.points[:-1] - comparator))
        bound = float(vn.certificates.thm_fullonedolo(comparator, np.sum(stream**2), epsilon))
    assert regret <= bound * (1 + 1e-12)


def test_bets_are_placed_around_the_start():
    stream = jnp.asarray(np.random.default_rng(3).uniform(-1, 1, size=100), jnp.float32)
    around_zero = play(vn.coin_betting(), stream, jnp.float32(0.0)).points
    around_two = play(vn.coin_betting(), stream, jnp.float32(2.0)).points
    np.testing.assert_allclose(around_two, 2 + around_zero, atol=1e-5)


def test_the_start_never_costs_more_than_epsilon():
    stream = np.random.default_rng(1).uniform(-1, 1, size=2000).astype(np.float32)
    game = play(vn.coin_betting(epsilon=0.3), jnp.asarray(stream), jnp.float32(2.0))
    assert np.sum(stream * (game.points[:-1] - 2.0)) <= 0.3


def test_a_hundred_thousand_equal_coins_saturate_in_float32():
    """Wealth stops at the square root of the largest float and comes back when coins turn."""
    limit = np.sqrt(np.finfo(np.float32).max)
    rounds = 100_000
    stream = jnp.concatenate([-jnp.ones(rounds), jnp.ones(200)])
    game = play(vn.coin_betting(), stream, jnp.zeros(()))
    assert np.all(np.isfinite(game.points))
    wealth = np.exp(game.states.log_wealth)
    np.testing.assert_allclose(wealth[rounds], limit, rtol=1e-4)
    np.testing.assert_allclose(game.points[rounds], limit / 2, rtol=1e-4)
    assert np.all(np.diff(wealth[: rounds + 1]) >= 0)
    assert np.all(wealth > 0)
    assert wealth[-1] < 1e-6 * limit


def test_one_bettor_a_coordinate():
    stream = np.random.default_rng(2).uniform(-1, 1, size=(100, 3)).astype(np.float32)
    together = play(vn.coin_betting(), jnp.asarray(stream), jnp.zeros(3)).points
    for i in range(3):
        alone = play(vn.coin_betting(), jnp.asarray(stream[:, i]), jnp.zeros(())).points
        np.testing.assert_allclose(together[:, i], alone, rtol=1e-6)


def test_coins_out_of_range_are_cut_and_counted():
    bettor = vn.coin_betting()
    params = jnp.zeros(())
    state = bettor.init(params)
    for coin in (jnp.nan, jnp.inf, -jnp.inf, 7.0, 1.0, -0.5):
        updates, state = bettor.update(jnp.float32(coin), state, params)
        params = optax.apply_updates(params, updates)
    assert int(state.coins_out_of_range) == 4
    assert np.all(np.isfinite(jax.tree.leaves(state)))
    cut = play(bettor, jnp.array([0.0, 1.0, -1.0, 1.0, 1.0, -0.5]), jnp.zeros(()))
    np.testing.assert_allclose(params, cut.points[-1], rtol=1e-6)
