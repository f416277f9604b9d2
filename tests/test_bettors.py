"""The one-dimensional learners: what they stake, what they can lose, and how they are certified."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

import optax_varynorm as vn
from optax_varynorm.coin_betting import wealth
from tests.playing import play, stream

EPSILON = 0.3
BETTORS = {
    "coin_betting": vn.coin_betting(EPSILON),
    "coin_betting_Z_0.3": vn.coin_betting(EPSILON, Z=0.3),
    "kt_betting": vn.kt_betting(EPSILON),
    "freegrad_betting": vn.freegrad_betting(EPSILON),
}
RADIUS = 2.0
INSIDE_CONSTRAINTS = ("coin_betting", "kt_betting")
CONSTRAINED = {
    f"constrained_{name}": vn.constrained_bets(BETTORS[name], RADIUS) for name in INSIDE_CONSTRAINTS
}
# Coin betting alone has a file of its own.
NEW = {
    "kt_betting": BETTORS["kt_betting"],
    "freegrad_betting": BETTORS["freegrad_betting"],
    "constrained_kt_betting": CONSTRAINED["constrained_kt_betting"],
}
every_new_learner = pytest.mark.parametrize("learner", NEW.values(), ids=NEW)
any_bettor = st.sampled_from([*BETTORS.values()])
any_constrained = st.sampled_from([*CONSTRAINED.values()])

# One compiled game for all examples: short streams end in zeros, which change nothing.
ROUNDS = 64
fixed_coins = hnp.arrays(
    np.float64, ROUNDS, elements=st.floats(-1, 1), fill=st.sampled_from([0.0, 0.1, 1.0, -1.0])
)
comparators = np.concatenate([-np.logspace(-3, 12, 40), [0.0], np.logspace(-3, 12, 40)])


@functools.partial(jax.jit, static_argnums=0)
def _bounds(learner, state):
    """The bound for every comparator, from one state."""
    return jax.vmap(lambda u: vn.certificates.bettor_bound(learner, state, u))(
        jnp.asarray(comparators)
    )


@functools.partial(jax.jit, static_argnums=0)
def _chase(learner, sizes, drift, target):
    """Coins that answer the bet: towards the target, as the gradient of |y - target| does."""

    def play_round(carry, size):
        bet, state = carry
        coin = jnp.clip(size * jnp.sign(bet - target) + drift, -1, 1)
        step, state = learner.update(coin, state, bet)
        return (optax.apply_updates(bet, step), state), (coin, bet, state)

    start = jnp.zeros_like(target)
    return jax.lax.scan(play_round, (start, learner.init(start)), sizes)[1]


@st.composite
def chases(draw):
    """Sizes of the coins, a drift in them, and where they point; the drift alone is a bias."""
    sizes = np.abs(draw(fixed_coins)) * draw(st.sampled_from([0.0, 1.0, -1.0]))
    drift = draw(st.sampled_from([0.0, 0.0, 0.5, -0.5, -1.0]))
    return sizes, np.float64(drift), draw(st.floats(-1e3, 1e3))


def _play_chase(learner, chase):
    coins, bets, states = jax.tree.map(np.asarray, _chase(learner, *map(jnp.asarray, chase)))
    return coins, bets, states, jax.tree.map(lambda leaf: leaf[-1], states)


_constraint_cost = jax.jit(lambda u: vn.certificates.constraint_cost(u, RADIUS))


def _regrets(coins, bets, u):
    return np.sum(coins * bets) - np.sum(coins) * u


def _kt_fractions(coins):
    heads = tails = 0.0
    for coin in coins:
        heads, tails = heads + max(-coin, 0), tails + max(coin, 0)
        yield (heads - tails) / (heads + tails + 1)


def _freegrad_fractions(coins):
    total, variance = 0.0, 1.0
    for coin in coins:
        total, variance = total + coin, variance + coin**2
        size = abs(total)
        yield -total * (2 * variance + size) / (2 * (variance + size) ** 2)


@pytest.mark.parametrize(
    ("bettor", "fractions"),
    [
        (BETTORS["kt_betting"], _kt_fractions),
        (BETTORS["freegrad_betting"], _freegrad_fractions),
    ],
)
def test_bettors_stake_the_published_fraction(x64, bettor, fractions):
    coins = np.random.default_rng(0).uniform(-1, 0.8, size=300)
    game = play(bettor, jnp.asarray(coins), jnp.zeros(()))
    wealth, bets = EPSILON, [0.0]
    for coin, fraction in zip(coins, fractions(coins), strict=True):
        wealth -= coin * bets[-1]
        bets.append(fraction * wealth)
    np.testing.assert_allclose(game.points, bets, rtol=1e-9)


@given(chases(), any_bettor)
def test_wealth_is_epsilon_minus_the_sum_of_losses_and_positive(chase, bettor):
    with jax.enable_x64(True):
        coins, bets, states, _ = _play_chase(bettor, chase)
        wealth = np.exp(states.log_wealth)
    identity = EPSILON - np.cumsum(coins * bets)
    np.testing.assert_allclose(wealth, identity, rtol=1e-9, atol=1e-9 * np.max(wealth))
    assert np.all(wealth > 0)
    assert np.all(np.abs(states.bet_fraction) < 1)


@given(chases(), any_bettor)
def test_regret_stays_below_the_bound_of_the_state(chase, bettor):
    with jax.enable_x64(True):
        coins, bets, _, final = _play_chase(bettor, chase)
        bounds = np.asarray(_bounds(bettor, final))
        assert np.all(bounds[comparators == 0] <= EPSILON * (1 + 1e-12))
    regrets = _regrets(coins, bets, comparators)
    assert np.all(regrets <= bounds + 1e-9 * np.abs(regrets))


@given(chases(), st.sampled_from(INSIDE_CONSTRAINTS))
def test_a_constraint_costs_what_it_says(chase, name):
    learner = CONSTRAINED[f"constrained_{name}"]
    with jax.enable_x64(True):
        coins, bets, _, final = _play_chase(learner, chase)
        inner = np.asarray(_bounds(BETTORS[name], final.bettor_state))
        whole = np.asarray(_bounds(learner, final))
        cost = np.asarray(_constraint_cost(comparators))
    regrets = _regrets(coins, bets, comparators)
    inside = np.abs(comparators) <= RADIUS
    np.testing.assert_array_equal(whole[inside], inner[inside])
    assert np.all(whole <= (inner + cost) * (1 + 1e-12))
    assert np.all(regrets <= whole + 1e-9 * np.abs(regrets))


@given(chases(), any_constrained)
def test_bets_stay_inside_and_surrogates_lose_no_less(chase, learner):
    """Round by round: c (y - u) <= c~ (yhat - u) for |u| <= D_t, at the interval's ends."""
    with jax.enable_x64(True):
        coins, bets, states, _ = _play_chase(learner, chase)
        unconstrained = np.asarray(wealth.bet(states.bettor_state))
    before = lambda leaf, first: np.concatenate([[first], leaf[:-1]])  # noqa: E731
    radius = RADIUS * np.sqrt(1 + before(states.seen_coin_size_sum, 0.0))
    unconstrained = before(unconstrained, 0.0)
    withheld = np.diff(states.withheld_coin_size_sum, prepend=0.0) > 0
    handed_on = np.where(withheld, 0.0, coins)
    assert np.all(np.abs(bets) <= radius * (1 + 1e-12))
    for end in (-radius, radius):
        gap = handed_on * (unconstrained - end) - coins * (bets - end)
        assert np.all(gap >= -1e-9 * np.maximum(radius, np.abs(unconstrained)))


def test_steady_coins_pay_the_price_of_the_constraint(x64):
    """The cubic cost is of the right order: a bettor that would run away is held back."""
    learner = vn.constrained_bets(vn.kt_betting(), radius=1.0)
    bets = play(learner, -jnp.ones(3000), jnp.zeros(())).points[:-1]
    comparator = 50.0
    lost = float(np.sum(-(bets - comparator)[bets < comparator]))
    cost = float(vn.certificates.constraint_cost(comparator, 1.0))
    assert 0.99 * cost < lost <= cost + float(vn.certificates.kt_betting_bound(comparator, 10.0))


def test_a_clipped_gradient_hides_no_more_than_its_excess_times_the_radius(x64):
    """In Algorithm 1: a gradient of dual norm N > 1 costs at most (N - 1) D_t unseen."""
    norm = vn.full_matrix_norm(lipschitz=1.0)
    scale = vn.constrained_bets(vn.kt_betting(), radius=1.0)
    optimizer = vn.with_varying_norm(norm, vn.scale_by_coin_betting(vn.ftrl_step(), scale))
    gradients = stream("drifting", 200, 3) - 0.1
    gradients[::10] *= 30.0
    game = play(optimizer, jnp.asarray(gradients), jnp.zeros(3))
    matrix, longest = 2 * np.eye(3), 0.0
    for t, gradient in enumerate(gradients):
        dual = np.sqrt(gradient @ np.linalg.solve(matrix, gradient))
        hidden = (1 - 1 / max(dual, 1)) * gradient @ game.points[t]
        radius = np.sqrt(1 + _scale_state(game.states).seen_coin_size_sum[t])
        assert hidden <= max(dual - 1, 0) * radius * (1 + 1e-9)
        matrix += np.outer(gradient, gradient)
        longest = max(longest, hidden)
    assert longest > 0


def _scale_state(state):
    """The scale learner's state, wherever the reductions keep it."""
    return optax.tree.get(state, "scale_state")


def test_coin_betting_bound_is_never_above_thm_fullonedolo(x64):
    sums = np.concatenate([[0.0], np.logspace(-3, 9, 50)])[None, :]
    ours, papers = (
        np.asarray(jax.jit(bound)(comparators[:, None], sums, EPSILON))
        for bound in (vn.certificates.coin_betting_bound, vn.certificates.thm_fullonedolo)
    )
    assert np.all(ours <= papers * (1 + 1e-12))


def test_bounds_are_at_most_the_closed_forms_they_document(x64):
    sums = np.concatenate([[0.0], np.logspace(-3, 9, 50)])[None, :]
    u = np.abs(comparators)[:, None]
    logarithm = np.log1p((sums + 1) * (1 + np.pi * sums / 2) * (u / EPSILON) ** 2)
    kt = EPSILON + u * np.sqrt((sums + 1) * logarithm)
    variance = 1 + sums
    slope = variance + 11 / 8 * np.sqrt(variance)
    logarithm = np.log(np.exp(0.5) + u * slope / EPSILON)
    freegrad = EPSILON + u * (logarithm + np.sqrt(logarithm**2 + 2 * variance * logarithm))
    for bound, closed_form in (
        (vn.certificates.kt_betting_bound, kt),
        (vn.certificates.freegrad_betting_bound, freegrad),
    ):
        assert np.all(np.asarray(jax.jit(bound)(u, sums, EPSILON)) <= closed_form * (1 + 1e-12))


def test_bounds_grow_with_the_comparator_and_the_coins(x64):
    sums = np.concatenate([[0.0], np.logspace(-3, 9, 50)])[None, :]
    sizes = np.logspace(-6, 12, 60)[:, None]
    for bound in (
        vn.certificates.coin_betting_bound,
        vn.certificates.kt_betting_bound,
        vn.certificates.freegrad_betting_bound,
    ):
        bound = jax.jit(bound)
        values = np.asarray(bound(sizes, sums, EPSILON))
        assert np.all(np.diff(values, axis=0) >= 0)
        assert np.all(np.diff(values, axis=1) >= 0)
        np.testing.assert_array_equal(values, np.asarray(bound(-sizes, sums, EPSILON)))
        single = bound(jnp.float32(sizes), jnp.float32(sums), jnp.float32(EPSILON))
        np.testing.assert_allclose(single, values, rtol=1e-4, atol=1e-6)


def _log_freegrad_potential(total, variance):
    return total**2 / (2 * variance + 2 * np.abs(total)) - np.log(variance) / 2


def test_the_freegrad_potential_never_grows_faster_than_the_wealth():
    totals = np.concatenate([[0.0], np.logspace(-4, 5, 120)])[:, None, None]
    variances = 1 + np.concatenate([[0.0], np.logspace(-6, 6, 120)])[None, :, None]
    coins = np.linspace(-1, 1, 81)[None, None, :]
    share = totals / (variances + np.abs(totals))
    fraction = -share * (2 - share) / 2
    growth = _log_freegrad_potential(totals + coins, variances + coins**2)
    growth = growth - _log_freegrad_potential(totals, variances)
    assert np.all(growth <= np.log1p(-coins * fraction) + 1e-9)


def _log_kt_potential(heads, tails):
    """Its log-gamma of arguments up to 1e6 leaves about nine digits."""
    return (
        (heads + tails) * np.log(2)
        + special.gammaln(heads + 0.5)
        + special.gammaln(tails + 0.5)
        - special.gammaln(heads + tails + 1)
        - np.log(np.pi)
    )


def test_the_kt_potential_never_grows_faster_than_the_wealth():
    counts = np.concatenate([[0.0], np.logspace(-4, 4, 60)])
    heads, tails = counts[:, None, None], counts[None, :, None]
    sizes = np.linspace(0, 1, 41)[None, None, :]
    fraction = (heads - tails) / (1 + heads + tails)
    growth = _log_kt_potential(heads + sizes, tails) - _log_kt_potential(heads, tails)
    assert np.all(growth <= np.log1p(sizes * fraction) + 1e-9)


def test_the_kt_potential_has_the_gaussian_lower_bound():
    counts = np.concatenate([[0.0], np.logspace(-4, 6, 200)])
    heads, tails = counts[:, None], counts[None, :]
    n, total = heads + tails, heads - tails
    gaussian = total**2 / (2 * (n + 1)) - np.log1p(np.pi * n / 2) / 2
    potential = _log_kt_potential(heads, tails)
    assert np.all(gaussian <= potential + 1e-9 * (1 + n))


@pytest.mark.parametrize("name", ["kt_betting", "freegrad_betting", "coin_betting", "Z = 0.3"])
def test_bounds_cover_the_conjugate_of_the_wealth(x64, name):
    """Regret is at most epsilon + sup over G of |u| |G| - wealth: no stream does worse."""
    u = np.logspace(-6, 9, 46)[:, None, None]
    sums = np.concatenate([[0.0], np.logspace(-2, 6, 25)])[None, :, None]
    totals = np.concatenate([[0.0], np.logspace(-4, 7, 4000)])[None, None, :]
    if name == "kt_betting":
        totals = np.linspace(0, 1, 4001) * sums
        log_potential = _log_kt_potential((sums + totals) / 2, (sums - totals) / 2)
        bound = vn.certificates.kt_betting_bound
    elif name == "freegrad_betting":
        log_potential = _log_freegrad_potential(totals, 1 + sums)
        bound = vn.certificates.freegrad_betting_bound
    else:
        Z = 0.3 if name == "Z = 0.3" else 1.0
        curvature = Z * (5 + 4 * sums) / 2 + sums
        v = np.minimum(0.5, totals / (2 * curvature))
        log_potential = v * totals - curvature * v**2 - np.log1p(4 * sums) / (2 * Z)
        bound = functools.partial(vn.certificates.coin_betting_bound, Z=Z)
    potential = EPSILON * np.exp(np.minimum(log_potential, 600.0))
    worst = EPSILON + np.max(u * totals - potential, axis=2)
    bounds = np.asarray(jax.jit(bound)(u[..., 0], sums[..., 0], EPSILON))
    assert np.all(worst <= bounds * (1 + 1e-9))
    # And not by far: no closed form of it is as close.
    many = (sums[..., 0] >= 100) & (u[..., 0] >= EPSILON) & (worst < 0.1 * u[..., 0] * sums[..., 0])
    assert np.max(bounds[many] / worst[many]) < 1.05


@given(chases(), st.sampled_from(["kt_betting", "freegrad_betting"]))
def test_wealth_stays_above_the_potential(chase, name):
    with jax.enable_x64(True):
        coins, _, states, _ = _play_chase(BETTORS[name], chase)
    heads, tails = np.cumsum(np.maximum(-coins, 0)), np.cumsum(np.maximum(coins, 0))
    potential = (
        _log_kt_potential(heads, tails)
        if name == "kt_betting"
        else _log_freegrad_potential(np.cumsum(coins), 1 + np.cumsum(coins**2))
    )
    assert np.all(states.log_wealth >= np.log(EPSILON) + potential - 1e-9)


@every_new_learner
def test_the_start_never_costs_more_than_epsilon_in_float32(learner):
    coins = np.random.default_rng(1).uniform(-1, 1, size=500).astype(np.float32)
    game = play(learner, jnp.asarray(coins), jnp.float32(2.0))
    assert np.sum(coins * (game.points[:-1] - 2.0)) <= EPSILON * (1 + 1e-5)


@pytest.mark.parametrize("name", ["kt_betting", "freegrad_betting"])
def test_a_hundred_thousand_equal_coins_saturate_in_float32(name):
    """Wealth stops at the square root of the largest float and comes back when coins turn."""
    rounds = 100_000
    limit = np.sqrt(np.finfo(np.float32).max)
    coins = jnp.concatenate([-jnp.ones(rounds), jnp.ones(400)])
    game = play(BETTORS[name], coins, jnp.zeros(()))
    wealth = np.exp(game.states.log_wealth)
    assert np.all(np.isfinite(game.points))
    assert np.all(np.isfinite(game.states.log_wealth))
    np.testing.assert_allclose(wealth[rounds], limit, rtol=1e-4)
    assert game.points[rounds] <= limit * (1 + 1e-4)
    assert wealth[-1] < 1e-6 * limit
    assert game.final_state.wealth_saturations > 0
    assert vn.certificates.bettor_bound(BETTORS[name], game.final_state, jnp.float32(1.0)) == np.inf


@every_new_learner
def test_a_zero_coin_changes_nothing(learner):
    game = play(learner, jnp.array([-1.0, 0.4, 0.0]), jnp.zeros(()))
    for leaf in jax.tree.leaves(game):
        np.testing.assert_allclose(leaf[-2], leaf[-1], rtol=1e-6)


def _fields(state):
    """Per-round states of several coordinates, as one tree of (rounds, coordinates)."""
    return np.stack([state["a"], state["b"][:, 0], state["b"][:, 1]], axis=1)


@every_new_learner
def test_trees_hold_one_learner_a_coordinate_and_vmap_agrees(learner):
    coins = np.random.default_rng(2).uniform(-1, 0.9, size=(60, 3)).astype(np.float32)
    tree = {"a": jnp.asarray(coins[:, 0]), "b": jnp.asarray(coins[:, 1:])}
    game = play(learner, tree, {"a": jnp.zeros(()), "b": jnp.zeros(2)})
    together = _fields(game.points)
    alone = jax.vmap(lambda column: _points(learner, column, jnp.zeros(())), in_axes=1, out_axes=1)(
        jnp.asarray(coins)
    )
    np.testing.assert_allclose(together[:-1], alone, rtol=1e-5, atol=1e-6)
    comparator = {"a": jnp.array(3.0), "b": jnp.array([-1.0, 0.5])}
    bounds = vn.certificates.bettor_bound(learner, game.final_state, comparator)
    gaps = {key: game.points[key][:-1] - np.asarray(comparator[key]) for key in tree}
    regret = sum(np.sum(np.asarray(tree[key]) * gaps[key]) for key in tree)
    assert jax.tree.map(jnp.shape, bounds) == jax.tree.map(jnp.shape, comparator)
    assert regret <= sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(bounds))


def _points(learner, coins, start):
    def play_round(carry, coin):
        bet, state = carry
        step, state = learner.update(coin, state, bet)
        return (optax.apply_updates(bet, step), state), bet

    return jax.lax.scan(play_round, (start, learner.init(start)), coins)[1]


@every_new_learner
def test_coins_out_of_range_are_cut_and_counted(learner):
    update = jax.jit(learner.update)
    bet = jnp.zeros(())
    state = learner.init(bet)
    for coin in (jnp.nan, jnp.inf, -jnp.inf, 7.0, 1.0, -0.5):
        step, state = update(jnp.float32(coin), state, bet)
        bet = optax.apply_updates(bet, step)
    assert int(optax.tree.get(state, "coins_out_of_range")) == 4
    assert np.all(np.isfinite(jax.tree.leaves(state)))
    cut = play(learner, jnp.array([0.0, 1.0, -1.0, 1.0, 1.0, -0.5]), jnp.zeros(()))
    np.testing.assert_allclose(bet, cut.points[-1], rtol=1e-6)
    assert update._cache_size() == 1


def test_a_withheld_coin_out_of_range_is_counted_too():
    learner = vn.constrained_bets(optax.sgd(10.0), radius=1.0)
    bet = jnp.zeros(())
    state = learner.init(bet)
    for coin in (-1.0, -50.0):
        step, state = learner.update(jnp.float32(coin), state, bet)
        bet = optax.apply_updates(bet, step)
    assert int(state.withheld_out_of_range) == 1
    np.testing.assert_allclose(state.withheld_coin_size_sum, 1.0)
    np.testing.assert_allclose(state.bettor_state.moved_by, 10.0)
    np.testing.assert_allclose(bet, np.sqrt(3.0), rtol=1e-6)


@every_new_learner
def test_state_and_parameters_can_be_donated(learner):
    params = jnp.ones(3)
    state = learner.init(params)
    update = jax.jit(lambda g, s, p: learner.update(g, s, p), donate_argnums=(1, 2))
    for _ in range(2):
        step, state = update(jnp.full(3, 0.5), state, params)
        params = jnp.ones(3) + step
    assert np.all(np.isfinite(params))


@pytest.mark.parametrize(
    "name",
    ["freegrad_betting", pytest.param("constrained_coin_betting", marks=pytest.mark.slow)],
)
def test_any_scale_learner_certifies_algorithm_1(x64, name):
    """``thm:1dred`` for any scale learner: its own bound plus the direction's."""
    norm = vn.full_matrix_norm(lipschitz=1.0)
    learner = (BETTORS | CONSTRAINED)[name]
    optimizer = vn.with_varying_norm(norm, vn.scale_by_coin_betting(vn.ftrl_step(), learner))
    gradients = stream("drifting", 150, 3)
    game = play(optimizer, jnp.asarray(gradients), jnp.zeros(3))
    final = game.final_state
    squares = float(optax.tree.get(final, "squared_dual_norm_sum"))
    matrix = 2 * np.eye(3) + gradients.T @ gradients
    directions = np.random.default_rng(4).normal(size=(20, 3))
    bound_of = jax.jit(lambda u: vn.certificates.bettor_bound(learner, _scale_state(final), u))
    for comparator in directions * np.logspace(-2, 3, 20)[:, None]:
        length = jnp.asarray(np.sqrt(comparator @ matrix @ comparator))
        bound = bound_of(length)
        regret = np.sum(gradients * (game.points[:-1] - comparator))
        assert regret <= bound + 2 * float(length) * np.sqrt(1 + squares)


def test_a_learner_without_a_bound_is_named():
    state = optax.adam(1.0).init(jnp.zeros(()))
    with pytest.raises(ValueError, match=r"No regret bound is known.*a bettor of this package"):
        vn.certificates.bettor_bound(optax.adam(1.0), state, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vn.kt_betting(epsilon=0.0), "`epsilon` .* must be a positive number"),
        (lambda: vn.freegrad_betting(epsilon=-1.0), "`epsilon` .* must be a positive number"),
        (lambda: vn.constrained_bets(vn.kt_betting(), radius=0.0), "`radius` .* positive number"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
