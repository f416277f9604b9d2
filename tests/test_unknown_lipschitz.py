"""Optimizers that were told nothing: no bound of the gradients, no units, no scale."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optax_varynorm as vn
from optax_varynorm.norm_library import growing_inverse
from tests.playing import play, play_points, stream

OPTIMIZERS = {
    "varynorm": vn.varynorm(),
    "fixed_norm": vn.fixed_norm(),
    "fixed_norm_1.5": vn.fixed_norm(p=1.5),
    "diagonal": vn.diagonal(),
    "full_matrix": vn.full_matrix(),
    "full_matrix_adagrad": vn.full_matrix_adagrad(),
}
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
NORMS = {
    "lp": vn.lp_norm(2.0, None),
    "lp_1.5": vn.lp_norm(1.5, None),
    "diagonal": vn.diagonal_norm(None),
    "diagonal_by_coordinate": vn.diagonal_norm(None, start="coordinate"),
    "diagonal_root": vn.diagonal_norm(None, root=True),
    "full_matrix": vn.full_matrix_norm(None),
    "full_matrix_by_coordinate": vn.full_matrix_norm(None, start="coordinate"),
    "full_matrix_root": vn.full_matrix_root_norm(None),
}
every_norm = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)


def learner(norm):
    return vn.with_varying_norm(norm, vn.scale_by_coin_betting(vn.ftrl_step()))


@every_optimizer
def test_the_unit_of_the_loss_does_not_matter(optimizer, x64):
    """Gradients 10^k times as large: points 10^-k times as large, for k from -8 to 8."""
    gradients = stream("drifting", 200, 5) * np.array([1.0, 0.1, 3.0, 1.0, 0.5])
    usual = play_points(optimizer, jnp.asarray(gradients), jnp.zeros(5))
    assert np.max(np.abs(usual)) > 1e-2
    for k in range(-8, 9):
        points = play_points(optimizer, jnp.asarray(gradients * 10.0**k), jnp.zeros(5))
        np.testing.assert_allclose(points * 10.0**k, usual, rtol=1e-6, atol=1e-12)


@every_optimizer
def test_float32_is_finite_in_every_unit(optimizer):
    gradients = stream("drifting", 200, 5).astype(np.float32)
    for k in range(-8, 9):
        points = play_points(optimizer, jnp.asarray(gradients) * np.float32(10.0**k), jnp.zeros(5))
        assert np.all(np.isfinite(points))
        assert np.max(np.abs(points)) > 0


@pytest.mark.parametrize("make", [vn.diagonal, vn.full_matrix])
def test_the_units_of_coordinates_do_not_matter(make, x64):
    """A coordinate in other units, up to the factor of 10^4 that is told from rounding."""
    gradients = stream("drifting", 200, 5)
    gradients[0] = 0.3
    units = np.array([1.0, 30.0, 0.03, 2.0, 0.1])
    usual = play_points(make(), jnp.asarray(gradients), jnp.zeros(5))
    other = play_points(make(), jnp.asarray(gradients * units), jnp.zeros(5))
    np.testing.assert_allclose(np.asarray(other) * units, usual, rtol=1e-8, atol=1e-10)


@every_optimizer
def test_the_first_gradient_and_zeros_move_nothing(optimizer):
    gradients = np.zeros((7, 3), np.float32)
    gradients[2] = [0.3, -2.0, 0.0]
    gradients[4] = [0.3, -2.0, 1e5]
    gradients[5] = [0.3, -2.0, 0.0]
    game = play(optimizer, jnp.asarray(gradients), jnp.ones(3))
    np.testing.assert_array_equal(game.points[:5], 1)
    assert np.all(np.isfinite(game.points))
    # The third coordinate was new in round five, so the learner knows of it by the norm only.
    if optimizer in (OPTIMIZERS["diagonal"], OPTIMIZERS["full_matrix"]):
        assert game.points[6, 1] > 1
        assert game.points[6, 2] == 1


@pytest.mark.slow
@every_optimizer
def test_after_a_gradient_a_million_times_larger_learning_goes_on(optimizer):
    """As fast as from the start, up to a small factor: the old gradients are forgotten noise."""
    rng = np.random.default_rng(0)
    target = np.array([1e-6, -2e-6, 1e-6], np.float32)
    rows = rng.normal(size=(600, 3)).astype(np.float32)

    @jax.jit
    def losses(size):
        def step(carry, row_and_size):
            row, size = row_and_size
            params, state = carry
            value, gradient = jax.value_and_grad(lambda w: size * jnp.abs(row @ (w - target)))(
                params
            )
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), value

        start = (jnp.zeros(3), optimizer.init(jnp.zeros(3)))
        return jax.lax.scan(step, start, (jnp.asarray(rows), size))[1]

    fresh = losses(jnp.full(600, 1e6))
    sizes = np.full(600, 1e6, np.float32)
    sizes[:20] = 1.0
    jumped = losses(jnp.asarray(sizes))
    assert np.all(np.isfinite(jumped))
    assert np.mean(jumped[300:]) <= 2 * np.mean(fresh[300:])
    assert np.mean(fresh[300:]) <= 0.5 * np.mean(fresh[:20])


@functools.partial(jax.jit, static_argnums=0)
def lengths_along(norm, gradients, points):
    """The norms of the points after each gradient."""

    def step(state, gradient):
        state = norm.observe_gradient(state, gradient)
        return state, jax.vmap(lambda x: vn.primal_norm(norm, state, x))(points)

    return jax.lax.scan(step, norm.init(points[0]), gradients)[1]


@every_norm
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([0.0, 1.0, 4.0]))
def test_norms_never_decrease(norm, seed, spread):
    """Gradients over many decades, with zeros: every way to start afresh is taken."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        gradients = rng.normal(size=(25, 4)) * 10.0 ** rng.normal(scale=spread, size=(25, 4))
        gradients *= rng.random((25, 4)) < 0.6
        points = rng.normal(size=(5, 4)) * 10.0 ** rng.normal(scale=spread, size=(5, 4))
        lengths = np.asarray(lengths_along(norm, jnp.asarray(gradients), jnp.asarray(points)))
        seen = np.cumsum(np.any(gradients != 0, axis=1)) > 0
        lengths = lengths[seen]  # before the first gradient there is no norm
        assert np.all(lengths[1:] >= lengths[:-1] * (1 - 1e-6))


@every_norm
@given(seed=st.integers(0, 2**32 - 1))
def test_the_same_gradient_fits_the_next_time(norm, seed):
    """Also when it is far larger than all before, and when it shows new coordinates."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        gradients = rng.normal(size=(8, 4)) * 10.0 ** rng.normal(scale=2.0, size=(8, 1))
        gradients *= rng.random((8, 4)) < 0.6
        length = dual_length_after(norm, jnp.asarray(gradients))
        # Coordinates that start alone know nothing of each other: a third for each of four.
        longest = np.sqrt(4 / 3) if norm is NORMS["diagonal_by_coordinate"] else 1
        assert length <= longest * (1 + 1e-9)


@functools.partial(jax.jit, static_argnums=0)
def dual_length_after(norm, gradients):
    def step(state, gradient):
        return norm.observe_gradient(state, gradient), None

    state, _ = jax.lax.scan(step, norm.init(gradients[0]), gradients)
    return vn.dual_norm(norm, state, gradients[-1])


def literal_matrix(gradients, factor=2.0, smallest=1e-4, outgrown=2.0**10):
    """The matrix of the norm that starts coordinate by coordinate, written out."""
    dimension = gradients.shape[1]
    matrix = np.zeros((dimension, dimension))
    largest = np.zeros(dimension)
    for g in gradients:
        for i in np.argsort(-np.abs(g)):
            if matrix[i, i] > 0 and g[i] ** 2 > outgrown * matrix[i, i]:
                matrix *= 1 + 1 / (2 * outgrown - 1)
                matrix[i, :] = matrix[:, i] = 0
                matrix[i, i] = factor * g[i] ** 2
        known = largest > 0
        part = np.max(np.abs(g[known]) / largest[known], initial=0)
        top = max(np.max(np.abs(g)), np.max(largest))
        enlarged = np.abs(g) / (part if 0 < part < 1 else 1)
        first = np.where(g != 0, np.clip(enlarged, smallest * top, top), 0)
        sizes = np.where(known, np.abs(g), first)
        matrix += np.diag(np.where(known, 0, factor * sizes**2)) + np.outer(g, g)
        largest = np.maximum(largest, sizes)
    return matrix


@pytest.mark.parametrize("kind", ["calm", "sparse", "jumping", "uneven"])
def test_the_matrix_by_coordinates_is_the_literal_one(kind, x64):
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(60, 6))
    if kind == "sparse":
        gradients *= rng.random(gradients.shape) < 0.15
    if kind == "jumping":
        gradients *= rng.random(gradients.shape) < 0.5
        gradients[20:, 2] *= 1e5
        gradients[40:, 4] *= 1e4
    if kind == "uneven":
        # Known coordinates grow, then one enters in a small round, one as rounding, one in a round
        # where a known one is rounding.
        gradients[:, 3:] = 0
        gradients[5:] *= 100
        gradients[20] = [1.0, 0.5, 0.5, 0.3, 0.0, 0.0]
        gradients[30] = [100.0, 0.0, 0.0, 10.0, 1e-12, 0.0]
        gradients[40] = [1e-9, 0.0, 0.0, 0.0, 0.0, 50.0]
    norm = vn.full_matrix_norm(None, start="coordinate")
    state = norm.init(jnp.zeros(6))
    observe = jax.jit(norm.observe_gradient)
    as_matrix = jax.jit(
        lambda state: jax.vmap(lambda x: norm.to_dual(state, x))(jnp.eye(6, dtype=float))
    )
    for count, gradient in enumerate(gradients, 1):
        state = observe(state, jnp.asarray(gradient))
        expected = literal_matrix(gradients[:count])
        matrix = as_matrix(state)
        scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
        error = np.abs(matrix - expected) / np.where(scale > 0, scale, 1)
        assert np.max(error) < 1e-5, count
    received = heard_sum(gradients)
    np.testing.assert_allclose(state.received_sum, received, rtol=1e-12, atol=1e-12)
    leader = norm.to_primal(state, state.received_sum)
    another = norm.to_primal(state, 2 * state.received_sum) / 2
    np.testing.assert_allclose(leader, another, atol=1e-8 * np.max(np.abs(leader)))


def heard_sum(gradients):
    """Every gradient but the first nonzero one of each coordinate."""
    first = np.cumsum(gradients != 0, axis=0) <= 1
    return np.sum(np.where(first, 0, gradients), axis=0)


def test_a_learner_hears_all_of_a_coordinate_but_its_first_gradient(x64):
    norm = vn.full_matrix_norm(None, start="coordinate")
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(60, 6)) * (rng.random((60, 6)) < 0.15)
    optimizer = vn.with_varying_norm(norm, vn.ftrl_step(), clip=False)
    ftrl = play(optimizer, jnp.asarray(gradients), jnp.zeros(6)).final_state.learner_state
    np.testing.assert_allclose(ftrl.gradient_sum, heard_sum(gradients), rtol=0, atol=1e-12)


@pytest.mark.parametrize("root", [False, True])
def test_the_direction_is_that_of_the_sum_after_a_new_start(root, x64):
    norm = vn.full_matrix_root_norm(None) if root else vn.full_matrix_norm(None)
    rng = np.random.default_rng(2)
    gradients = rng.normal(size=(60, 6))
    gradients[20:] *= 1e4
    game = play(learner(norm), jnp.asarray(gradients), jnp.zeros(6))
    state = jax.tree.map(jnp.asarray, game.final_state)
    assert state.norm_state.unit > 1e3
    ftrl = state.learner_state.direction_state
    primal = norm.to_primal(state.norm_state, ftrl.gradient_sum)
    vertex = np.sqrt(0.5) / np.sqrt(1 + ftrl.squared_dual_norm_sum)
    factor = min(vertex, 1 / np.sqrt(ftrl.gradient_sum @ primal))
    np.testing.assert_allclose(ftrl.direction, -factor * primal, rtol=1e-9)


@pytest.mark.slow
def test_rare_coordinates_do_not_make_the_wealth_explode():
    """Two hundred features, each seen a few times, with nearly all labels the same."""
    rng = np.random.default_rng(0)
    rows = (rng.random((3000, 200)) < 0.01).astype(np.float32)
    rows[:, 0] = 1
    signs = np.where(rng.random(3000) < 0.03, 1.0, -1.0).astype(np.float32)

    def loss(w, example):
        return jax.nn.softplus(-example[1] * (example[0] @ w))

    best_constant = -(0.03 * np.log(0.03) + 0.97 * np.log(0.97))
    for make in (vn.diagonal, vn.full_matrix, vn.varynorm):
        game = vn.play(make(), loss, (jnp.asarray(rows), jnp.asarray(signs)), jnp.zeros(200))
        assert np.mean(game.losses) < 3 * best_constant
        wealth = [
            np.max(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(game.state)
            if "log_wealth" in jax.tree_util.keystr(path)
        ]
        assert wealth
        assert max(wealth) < np.log(1e4)


def test_a_coordinate_that_starts_afresh_takes_nothing_from_the_others(x64):
    """The matrix grows in every direction, by the inflation that makes up for lost cross terms."""
    norm = vn.full_matrix_norm(None, start="coordinate")
    state = norm.init(jnp.zeros(2))
    observe = jax.jit(norm.observe_gradient)
    for gradient in ([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]):
        state = observe(state, jnp.array(gradient))
    before = np.asarray(jax.vmap(lambda x: norm.to_dual(state, x))(jnp.eye(2)))
    state = observe(
        state, jnp.array([0.0, 1.001 * np.sqrt(growing_inverse.OUTGROWN * before[1, 1])])
    )
    after = np.asarray(jax.vmap(lambda x: norm.to_dual(state, x))(jnp.eye(2)))
    assert abs(after[0, 1]) < 1e-6 * before[0, 1]  # it did start afresh
    # In units of each coordinate, where the least eigenvalue can be told from rounding.
    scale = 1 / np.sqrt(np.diag(after))
    growth = scale[:, None] * (after - before) * scale
    assert np.min(np.linalg.eigvalsh(growth)) > 0


def test_the_root_covers_a_gradient_longer_than_all_before(x64):
    norm = vn.full_matrix_root_norm(None)
    gradients = jnp.asarray(np.diag([1.0, 1.0, 1.4]))
    assert dual_length_after(norm, gradients) <= 1


def test_a_slightly_longer_gradient_does_not_start_afresh(x64):
    norm = vn.full_matrix_norm(None)
    state = norm.init(jnp.zeros(2))
    observe = jax.jit(norm.observe_gradient)
    for _ in range(20):
        state = observe(state, jnp.array([1.0, 0.0]))
    unit = state.unit
    state = observe(state, jnp.array([0.0, 1.5]))
    assert state.unit == unit
    np.testing.assert_allclose(state.squares, (20 + 1.5**2) / unit**2)


@every_optimizer
def test_a_jump_beyond_what_float32_can_square_leaves_everything_finite(optimizer):
    gradients = jnp.array([1e-12, 1e-12, 1e8, 1.0, 1.0, 1e8, 1e14])[:, None] * jnp.ones((1, 3))
    game = play(optimizer, gradients, jnp.zeros(3))
    for leaf in jax.tree.leaves(game):
        assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize("make", [vn.diagonal, vn.full_matrix])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 1e-7])
def test_a_coordinate_that_comes_late_learns_beside_one_that_is_done(make, noise):
    """A tiny gradient of the known coordinate says little about the size of the new one."""
    optimizer = make()

    def step(carry, number):
        params, state = carry
        early = number < 50
        gradient = jnp.where(
            jnp.array([True, False]),
            jnp.where(early, jnp.sign(params - 1), noise),
            jnp.where(early, 0, jnp.sign(params - 5)),
        )
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), params

    start = (jnp.zeros(2), optimizer.init(jnp.zeros(2)))
    _, points = jax.jit(lambda start: jax.lax.scan(step, start, jnp.arange(2000)))(start)
    assert np.mean(np.abs(points[1000:, 1] - 5)) < 0.5


@pytest.mark.slow
def test_no_run_of_many_is_deaf_in_float32():
    """Some coordinate of some run has a first gradient a thousand times too small for its unit."""
    runs, rounds, dimension = 64, 1000, 64
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(runs, rounds, dimension))
    targets = np.einsum("std,sd->st", rows, rng.normal(size=(runs, dimension)))
    optimizer = vn.full_matrix()

    def mean_loss(rows, targets):
        def step(carry, example):
            (params, state), (row, target) = carry, example
            loss, gradient = jax.value_and_grad(lambda w: jnp.abs(w @ row - target))(params)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), loss

        start = jnp.zeros(dimension, rows.dtype)
        return jnp.mean(jax.lax.scan(step, (start, optimizer.init(start)), (rows, targets))[1])

    def losses(dtype):
        return np.asarray(jax.jit(jax.vmap(mean_loss))(rows.astype(dtype), targets.astype(dtype)))

    narrow = losses(np.float32)
    with jax.enable_x64(True):
        wide = losses(np.float64)
    np.testing.assert_allclose(narrow, wide, rtol=0.01)
