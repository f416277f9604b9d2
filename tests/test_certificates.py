"""Regret that is read off the state: exact, below its bound, and a proof of optimality."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import optax_varynorm as vn
from tests.playing import play

BALL = vn.l2_ball(1.0)
LEARNERS = {
    "varynorm": vn.varynorm(),
    "varynorm_on_a_ball": vn.varynorm(domain=BALL),
    "fixed_norm": vn.fixed_norm(epsilon=0.1),
    "fixed_norm_1.5_in_a_half_space": vn.fixed_norm(
        1.5, domain=vn.half_space(np.ones(3), 2.0), lipschitz=1.0
    ),
    "diagonal": vn.diagonal(scale_learner=vn.freegrad_betting),
    "full_matrix": vn.full_matrix(scale_learner=vn.kt_betting),
    "full_matrix_of_known_length_on_a_ball": vn.full_matrix(lipschitz=1.0, domain=BALL),
    "full_matrix_adagrad": vn.full_matrix_adagrad(),
    "constrained": vn.fixed_norm(scale_learner=lambda e: vn.constrained_bets(vn.coin_betting(e))),
}
ROUNDS, DIMENSION = 40, 3


@functools.partial(jax.jit, static_argnums=0)
def play_tracked(learner, gradients, comparators, start):
    """The points, for each comparator the regret and its bound, and the last state."""
    optimizer = vn.track_regret(learner)

    def step(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), params

    (_, state), points = jax.lax.scan(step, (start, optimizer.init(start)), gradients)
    return (
        points,
        jax.vmap(lambda u: vn.regret(state, u))(comparators),
        jax.vmap(lambda u: vn.regret_bound(optimizer, state, u))(comparators),
        state,
    )


def random_stream(rng, kind):
    gradients = rng.normal(size=(ROUNDS, DIMENSION))
    match kind:
        case "sparse":
            gradients *= rng.random(gradients.shape) < 0.3
        case "growing":
            gradients *= 10.0 ** (rng.normal() * np.arange(ROUNDS) / ROUNDS)[:, None]
        case "biased":
            gradients += 2 * rng.normal(size=DIMENSION)
        case "wild":
            gradients *= 10.0 ** rng.normal(scale=2, size=(ROUNDS, 1))
    return gradients


@pytest.mark.parametrize("name", LEARNERS)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["calm", "sparse", "growing", "biased", "wild"]),
)
@settings(max_examples=120)
def test_regret_is_exact_and_below_its_bound(name, seed, kind):
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        gradients = random_stream(rng, kind)
        comparators = rng.normal(size=(6, DIMENSION)) * 10.0 ** rng.normal(size=(6, 1))
        if "ball" in name:
            comparators /= np.maximum(1, np.linalg.norm(comparators, axis=1, keepdims=True))
        if "half_space" in name:
            comparators -= np.maximum(0, np.sum(comparators, axis=1, keepdims=True) - 2)
        start = 0.5 * rng.normal(size=DIMENSION) / (1 + np.sqrt(DIMENSION))
        start *= np.linalg.norm(start) < 0.5
        comparators[0] = start
        points, regrets, bounds, _ = play_tracked(
            LEARNERS[name], *map(jnp.asarray, (gradients, comparators, start))
        )
        by_hand = np.sum(
            gradients[:, None] * (np.asarray(points)[:, None] - comparators), axis=(0, 2)
        )
        size = np.sum(np.abs(gradients[:, None] * (np.asarray(points)[:, None] - comparators)))
        np.testing.assert_allclose(regrets, by_hand, atol=1e-12 * size)
        assert np.all(regrets <= bounds + 1e-9 * size)


def test_a_wrong_constant_breaks_the_certificate(x64):
    """A coin that always falls against the bettor: what it loses is all of epsilon, not half."""
    optimizer = vn.track_regret(vn.fixed_norm(epsilon=2.0, lipschitz=1.0))
    params, state = jnp.zeros(1), optimizer.init(jnp.zeros(1))
    step = jax.jit(optimizer.update)
    for _ in range(400):
        gradient = jnp.where(params > 0, 1.0, -1.0)
        updates, state = step(gradient, state, params)
        params = optax.apply_updates(params, updates)
    origin = jnp.zeros(1)
    lost, bound = vn.regret(state, origin), vn.regret_bound(optimizer, state, origin)
    assert 0.5 * bound < lost <= bound <= 2.0


def test_what_clipping_hides_is_needed_for_the_bound(x64):
    """One gradient a thousand times as long, against what was learned: most of it is hidden."""
    gradients = np.full((60, DIMENSION), -0.5)
    gradients[-1] = 500.0
    origin = np.zeros((1, DIMENSION))
    _, regrets, bounds, state = play_tracked(
        vn.fixed_norm(), jnp.asarray(gradients), jnp.asarray(origin), jnp.zeros(DIMENSION)
    )
    inner = state.tracked_learner_state.grounded_learner_state
    assert inner.clipped_rounds == 1
    hidden = state.tracked_loss.value() - inner.learner_state.charged.value()
    assert regrets[0] <= bounds[0]
    assert regrets[0] > bounds[0] - hidden


@pytest.mark.parametrize("make", [vn.fixed_norm, vn.diagonal, vn.full_matrix])
def test_what_a_learner_was_charged_is_what_its_wealth_lost(make, x64):
    """Clipping leaves a gap to the losses, which are counted as they are."""
    rng = np.random.default_rng(3)
    gradients = random_stream(rng, "wild") * (rng.random((ROUNDS, DIMENSION)) < 0.5)
    start = rng.normal(size=DIMENSION)
    optimizer = vn.track_regret(make(epsilon=0.5))
    game = play(optimizer, jnp.asarray(gradients), jnp.asarray(start))
    tracked = game.final_state
    state = tracked.tracked_learner_state.grounded_learner_state
    charged = state.learner_state.charged.value()
    wealth = np.exp(state.learner_state.scale_state.log_wealth)
    np.testing.assert_allclose(charged, 0.5 - wealth, rtol=1e-9)
    lost = np.sum(gradients * (game.points[:-1] - start))
    np.testing.assert_allclose(tracked.tracked_loss.value(), lost, rtol=1e-12)
    total = np.sum(gradients, axis=0)
    np.testing.assert_allclose(tracked.tracked_gradient.value(), total, rtol=1e-12)
    assert state.clipped_rounds > 0
    assert abs(lost - charged) > 0.01 * abs(lost)


@functools.partial(jax.jit, static_argnums=0)
def certify(learner, matrix, offset):
    """Least absolute deviations over a ball: the average point and its certified gap."""
    optimizer = vn.with_averaging(vn.track_regret(learner))

    def objective(w):
        return jnp.mean(jnp.abs(matrix @ w - offset))

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(jax.grad(objective)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    start = jnp.zeros(matrix.shape[1])
    (_, state), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=100)
    return vn.averaged_params(state), vn.certified_gap(state, BALL)


def least_deviation(matrix, offset):
    """The least mean deviation over the unit ball, by SciPy; a value that is attained."""

    def objective(variables):
        return np.mean(variables[3:])

    constraints = [
        {"type": "ineq", "fun": lambda v: v[3:] - (matrix @ v[:3] - offset)},
        {"type": "ineq", "fun": lambda v: v[3:] + (matrix @ v[:3] - offset)},
        {"type": "ineq", "fun": lambda v: 1 - v[:3] @ v[:3]},
    ]
    first = np.concatenate([np.zeros(3), np.abs(offset) + 0.1])
    solved = optimize.minimize(objective, first, constraints=constraints, method="SLSQP")
    point = solved.x[:3] / max(1, np.linalg.norm(solved.x[:3]))
    return np.mean(np.abs(matrix @ point - offset))


GAPS = {
    "full_matrix": vn.full_matrix(domain=BALL),
    "varynorm": vn.varynorm(domain=BALL),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GAPS)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.01, 1.0, 100.0]))
@settings(max_examples=500)
def test_the_certified_gap_is_never_below_the_true_one(name, seed, scale):
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        matrix, offset = scale * rng.normal(size=(5, 3)), 2 * scale * rng.normal(size=5)
        average, gap = certify(GAPS[name], jnp.asarray(matrix), jnp.asarray(offset))
        value = np.mean(np.abs(matrix @ np.asarray(average) - offset))
        true_gap = value - least_deviation(matrix, offset)
        assert true_gap <= gap + 1e-12 * scale


def test_a_proof_can_stop_training():
    """The loop ends when the certified gap does, and the average is as good as it says."""
    optimizer = vn.with_averaging(vn.track_regret(vn.varynorm(domain=BALL)))
    target = jnp.array([0.3, 2.0])

    def objective(w):
        return jnp.sum(jnp.abs(w - target))

    def step(carry):
        params, state = carry
        updates, state = optimizer.update(jax.grad(objective)(params), state, params)
        return optax.apply_updates(params, updates), state

    def unproven(carry):
        return vn.certified_gap(carry[1], BALL) > 0.02

    start = jnp.zeros(2)
    _, state = jax.jit(functools.partial(jax.lax.while_loop, unproven, step))(
        (start, optimizer.init(start))
    )
    angles = np.linspace(0, 2 * np.pi, 100_001)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    best = np.min(np.sum(np.abs(circle - np.asarray(target)), axis=1))
    assert objective(vn.averaged_params(state)) - best <= 0.02
    rounds = state.averaged_learner_state.tracked_rounds
    assert 10 < rounds < 20_000


def test_float32_sums_do_not_drift():
    """A million gradients of 0.1 around a distant start: plain float32 sums would be off by 1 %."""
    optimizer = vn.track_regret(optax.sgd(0.0))

    def step(carry, _):
        params, state = carry
        _, state = optimizer.update(jnp.array([0.1], jnp.float32), state, params)
        return (params, state), None

    start = jnp.array([1000.0])
    (_, state), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=1_000_000)
    exact = -1_000_000 * float(np.float32(0.1)) * 2.0
    np.testing.assert_allclose(vn.regret(state, jnp.array([1002.0])), exact, rtol=1e-6)


def test_records_are_found_and_asked_for_clearly():
    params = {"a": jnp.zeros(2), "b": jnp.zeros(())}
    chain = optax.chain(optax.clip(1.0), vn.track_regret(vn.fixed_norm()))
    state = chain.init(params)
    assert vn.regret(state, params) == 0
    assert vn.certified_gap(state, BALL) == np.inf
    with pytest.raises(ValueError, match="has no record"):
        vn.regret(vn.fixed_norm().init(params), params)
    with pytest.raises(ValueError, match="has 2 records"):
        vn.regret((state, state), params)
    with pytest.raises(ValueError, match="shaped like the parameters"):
        vn.regret(state, {"a": jnp.zeros(3), "b": jnp.zeros(())})
    sgd = vn.track_regret(optax.sgd(0.1))
    with pytest.raises(ValueError, match="No regret bound is known"):
        vn.regret_bound(sgd, sgd.init(params), params)
    unproven = vn.track_regret(vn.scale_by_coin_betting(optax.sgd(0.1)))
    with pytest.raises(ValueError, match="No regret bound is known"):
        vn.regret_bound(unproven, unproven.init(params), params)
    bare = vn.track_regret(vn.scale_by_coin_betting(vn.ftrl_step()))
    with pytest.raises(ValueError, match="inside `with_varying_norm`"):
        vn.regret_bound(bare, bare.init(params), params)
    assert vn.worst_regret(state, vn.whole_space()) == 0


def test_gradients_that_cannot_be_added_up_are_left_out_and_counted():
    optimizer = vn.track_regret(vn.full_matrix())
    params = jnp.zeros(2)
    state = optimizer.init(params)
    bad = (np.nan, np.inf, 1e30)
    for number in bad:
        _, state = optimizer.update(jnp.array([number, 1.0]), state, params)
    assert state.tracked_rounds == 0
    assert state.untracked_rounds == len(bad)
    assert vn.regret(state, jnp.ones(2)) == 0
    _, state = optimizer.update(jnp.ones(2), state, params)
    assert vn.regret(state, jnp.ones(2)) == -2
    assert vn.certified_gap(state, BALL) == np.inf


def test_gradients_that_learners_skip_have_a_regret():
    """The square of 1e20 overflows in float32, its sums do not."""
    learner = vn.full_matrix()
    optimizer = vn.track_regret(learner)
    params = jnp.zeros(2)
    gradient = jnp.array([1e20, 0.0])
    _, state = optimizer.update(gradient, optimizer.init(params), params)
    assert state.tracked_learner_state.grounded_learner_state.skipped_rounds == 1
    assert state.tracked_rounds == 1
    u = jnp.array([-0.5, 0.0])
    np.testing.assert_allclose(vn.regret(state, u), 0.5e20, rtol=1e-6)
    assert vn.regret(state, u) <= vn.regret_bound(optimizer, state, u)
    np.testing.assert_array_equal(
        vn.regret_bound(learner, state, u), vn.regret_bound(optimizer, state, u)
    )


VARIANTS = {
    "sec_adagrad": {},
    "low_rank": {"start_directions": 8},
    "drifting": {"drift": 2**-0.5},
}
SINGLES = ("fixed_norm", "full_matrix", "full_matrix_adagrad")


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("lipschitz", [1.0, None])
def test_the_combination_is_as_good_as_the_best(variant, lipschitz):
    """On the paper's sequence and its variants: epsilon for each learner, and 5 % of the best."""
    gradients = vn.certificates.sec_adagrad(64, 768, **VARIANTS[variant])
    gradients = jnp.asarray(gradients, jnp.float32)
    inside = {
        name: getattr(vn, name)(lipschitz=lipschitz, domain=BALL) for name in (*SINGLES, "varynorm")
    }
    inside["combination"] = vn.with_varying_norm(
        vn.lp_norm(),
        vn.project(BALL, vn.combine(*(getattr(vn, name)(lipschitz=lipschitz) for name in SINGLES))),
        clip=False,
    )
    regrets = {name: worst_regret_on(learner, gradients) for name, learner in inside.items()}
    limit = 1.05 * min(regrets[name] for name in SINGLES) + 3.0
    assert regrets["combination"] <= limit
    assert regrets["varynorm"] <= limit


@functools.partial(jax.jit, static_argnums=0)
def worst_regret_on(learner, gradients):
    optimizer = vn.track_regret(learner)

    def step(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    start = jnp.zeros(gradients.shape[1])
    (_, state), _ = jax.lax.scan(step, (start, optimizer.init(start)), gradients)
    return vn.worst_regret(state, BALL)


def test_combined_regrets_add_up(x64):
    rng = np.random.default_rng(0)
    gradients = jnp.asarray(random_stream(rng, "sparse"))
    learners = (vn.fixed_norm(), vn.full_matrix(epsilon=0.3))
    start = rng.normal(size=DIMENSION)
    alone = [play(learner, gradients, jnp.asarray(start)).points for learner in learners]
    together = play(vn.combine(*learners), gradients, jnp.asarray(start)).points
    np.testing.assert_allclose(together - start, sum(p - start for p in alone), atol=1e-12)


@pytest.mark.parametrize(("size", "members"), [(512, 3), (513, 2)])
def test_the_matrix_takes_part_while_it_is_small(size, members):
    params = {"a": jnp.zeros((size - 1,)), "b": jnp.zeros(1)}
    state = jax.eval_shape(vn.varynorm().init, params)
    learners = state.grounded_learner_state.learner_states
    assert sum(1 for learner in learners if jax.tree.leaves(learner)) == members


def final_state(learner, gradients, start):
    return jax.tree.map(jnp.asarray, play(learner, gradients, start).final_state)


def test_the_bound_is_the_theorem_written_out(x64):
    """thm:1dred for the norm and the squares at hand, doubled by the paper's surrogate."""
    rng = np.random.default_rng(5)
    gradients = jnp.asarray(0.3 * rng.normal(size=(ROUNDS, DIMENSION)))
    start, u = jnp.asarray(0.1 * rng.normal(size=(2, DIMENSION)))
    norm = vn.full_matrix_norm(2.0)
    for surrogate, factor in (("tight", 1), ("paper", 2)):
        learner = vn.with_varying_norm(
            norm, vn.project(BALL, vn.scale_by_coin_betting(vn.ftrl_step()), surrogate)
        )
        optimizer = vn.track_regret(learner)
        state = final_state(optimizer, gradients, start)
        inner = state.tracked_learner_state.learner_state.projected_learner_state
        covariance = np.asarray(gradients).T @ np.asarray(gradients) + 8.0 * np.eye(DIMENSION)
        length = np.sqrt((u - start) @ covariance @ (u - start))
        squares = inner.direction_state.squared_dual_norm_sum
        bettor = vn.certificates.bettor_bound(
            vn.coin_betting(), inner.scale_state, jnp.asarray(length)
        )
        expected = factor * (bettor + 2 * length * np.sqrt(1 + squares))
        bound = vn.regret_bound(optimizer, state, u)
        np.testing.assert_allclose(bound, expected, rtol=1e-9)


def test_the_bound_of_a_combination_is_the_least_of_its_learners(x64):
    rng = np.random.default_rng(6)
    gradients = jnp.asarray(random_stream(rng, "sparse"))
    start, u = jnp.asarray(rng.normal(size=(2, DIMENSION)))
    learners = (vn.fixed_norm(), vn.diagonal(epsilon=0.5), vn.full_matrix(epsilon=3.0))
    optimizer = vn.track_regret(vn.combine(*learners))
    state = final_state(optimizer, gradients, start)
    pairs = list(zip(learners, state.tracked_learner_state.learner_states, strict=True))
    offset, origin = u - start, jnp.zeros(DIMENSION)
    candidates = [
        sum(other.slack(s, offset if i == j else origin) for j, (other, s) in enumerate(pairs))
        for i in range(3)
    ]
    bound = vn.regret_bound(optimizer, state, u)
    np.testing.assert_allclose(bound, vn.regret(state, u) + min(candidates), rtol=1e-12)
    assert max(candidates) > 1.1 * min(candidates)


def test_the_worst_comparator_is_found_from_any_start():
    optimizer = vn.track_regret(optax.sgd(0.0))
    params = jnp.array([0.5, 0.0])
    _, state = optimizer.update(jnp.array([1.0, 2.0]), optimizer.init(params), params)
    np.testing.assert_allclose(vn.worst_regret(state, BALL), 0.5 + 5**0.5, rtol=1e-6)


def test_comparators_in_other_containers_say_what_to_do():
    """Such as variables of flax around the parameters: the same names, another tree."""
    params = {"w": jnp.zeros(2)}
    optimizer = vn.track_regret(vn.fixed_norm())
    with pytest.raises(ValueError, match=r"nnx\.as_pure"):
        vn.regret(optimizer.init(params), collections.OrderedDict(params))


@pytest.mark.parametrize("center", [1e4, 1e6])
def test_the_certified_gap_allows_for_rounding_far_from_zero(center):
    """In float32, where a support function and its value at the start nearly cancel."""
    interval, slope = vn.box(center - 1, center + 1), np.float32(-0.3)
    optimizer = vn.track_regret(vn.fixed_norm(domain=interval))

    def play_round(carry, _):
        params, state = carry
        updates, state = optimizer.update(jnp.full(1, slope), state, params)
        return (optax.apply_updates(params, updates), state), params

    start = jnp.full(1, center)
    (_, state), points = jax.lax.scan(play_round, (start, optimizer.init(start)), length=1000)
    true_gap = float(slope) * (np.mean(np.asarray(points, np.float64)) - (center + 1))
    assert 0 < true_gap <= vn.certified_gap(state, interval)


def test_no_bound_where_coins_were_cut_or_winnings_given_away():
    loose = vn.with_varying_norm(vn.lp_norm(), vn.scale_by_coin_betting(vn.ftrl_step()), clip=False)
    gradients = np.full((60, DIMENSION), -0.5, np.float32)
    gradients[-1] = 500.0
    zeros = jnp.zeros(DIMENSION)
    state = final_state(loose, jnp.asarray(gradients), zeros)
    assert loose.slack(state, zeros) == np.inf
    lucky = final_state(vn.varynorm(), jnp.full((400, DIMENSION), -1.0), zeros)
    assert vn.varynorm().slack(lucky, zeros) == np.inf


def test_a_distant_start_does_not_blur_the_bound():
    """In float32, a million away from zero: losses are measured from the start."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(ROUNDS, DIMENSION)) * (rng.random((ROUNDS, DIMENSION)) < 0.3)
    start = jnp.full(DIMENSION, 1e6)
    _, regrets, bounds, _ = play_tracked(
        vn.varynorm(), jnp.asarray(gradients, jnp.float32), start[None], start
    )
    assert regrets[0] <= bounds[0] <= 3.0 + 1e-3


def test_squares_are_those_of_what_was_received(x64):
    gradients = jnp.array([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    state = final_state(vn.fixed_norm(), gradients, jnp.zeros(2))
    inner = state.grounded_learner_state.learner_state
    squares = inner.direction_state.squared_dual_norm_sum
    np.testing.assert_allclose(squares, 0 + 1 + 0.25, rtol=1e-12)


@pytest.mark.parametrize("make", [vn.varynorm, vn.fixed_norm])
def test_there_is_no_proof_where_points_of_the_average_were_left_out(make):
    """Gradients of 1e20 cannot be squared: learners skip them, the average has their points."""
    ball = vn.l2_ball(10.0)
    optimizer = vn.with_averaging(vn.track_regret(make(domain=ball)))

    def cliff(w):
        return jnp.maximum(jnp.abs(w[0] - 1), 1e20 * (w[0] - 1.1)) + jnp.abs(w[1])

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(jax.grad(cliff)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    start = jnp.zeros(2)
    (_, state), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=300)
    assert cliff(vn.averaged_params(state)) <= vn.certified_gap(state, ball)


@pytest.mark.slow
def test_a_promise_broken_for_long_leaves_the_bound_true_in_float32():
    """Gradients a hundred times too long, 600,000 of them."""
    box = vn.box(-1.0, 1.0)
    optimizer = vn.track_regret(
        vn.varynorm(scale_learner=vn.kt_betting, lipschitz=0.0065, domain=box)
    )

    def step(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    start = jnp.zeros(2)
    for drift in ([0.3, -0.01], [0.0, 0.0]):
        gradients = jax.random.normal(jax.random.key(0), (600_000, 2)) + jnp.array([drift])
        (_, state), _ = jax.lax.scan(step, (start, optimizer.init(start)), gradients)
        for comparator in jnp.array([[0.0, 0.0], [-1, 1], [1, 1], [-1, -1], [0.5, -0.3]]):
            regret = vn.regret(state, comparator)
            assert regret <= vn.regret_bound(optimizer, state, comparator)


@pytest.mark.parametrize("make", [vn.fixed_norm, vn.diagonal, vn.full_matrix, vn.varynorm])
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_bounds_allow_for_the_rounding_of_their_sums(make, wide):
    """Against comparators as close as rounding, where all that a bound is made of cancels."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(wide):
        gradients = rng.normal(size=(60, 20, 3)) * 10.0 ** rng.normal(size=(60, 1, 3))
        gradients[::3] = 0
        gradients[1::3, 1:] = 0
        comparators = rng.normal(size=(60, 8, 3)) * 10.0 ** rng.uniform(-14, -8, size=(60, 8, 1))
        optimizer = make()
        dtype = jnp.float64 if wide else jnp.float32
        _, regrets, bounds, _ = jax.vmap(lambda g, u: play_tracked(optimizer, g, u, u[0] * 0))(
            jnp.asarray(gradients, dtype), jnp.asarray(comparators, dtype)
        )
    assert np.all(np.asarray(regrets) <= np.asarray(bounds))
