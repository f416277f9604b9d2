"""Algorithm 2 on convex domains: the reference's points, regret, experts, transformations."""

import functools

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from optax_varynorm.domains import active_set, ball, in_kernels, short_lanczos
from optax_varynorm.domains.constraint import length
from optax_varynorm.domains.metric import metric_of, stiffness
from tests import projecting, reference
from tests.playing import play, play_points, stream

EPSILON, DIMENSION = 5.0, 6
ROWS = np.random.default_rng(3).normal(size=(10, DIMENSION))
TILT = np.linspace(-1.0, 1.0, DIMENSION)
UNIFORM = np.full(DIMENSION, 1 / DIMENSION)


class ConvexSet:
    """A domain for ``reference.play``, projected on by CVXPY with Clarabel."""

    def __init__(self, constraints, holds, inside):
        self.constraints, self.holds, self.inside = constraints, holds, inside
        self.factor = cp.Parameter((DIMENSION, DIMENSION))
        self.point = cp.Parameter(DIMENSION)
        self.x = cp.Variable(DIMENSION)
        self.w = self.point - self.factor @ self.x
        self.program = cp.Problem(cp.Minimize(cp.sum_squares(self.x)), constraints(self.w))

    def project(self, norm, v):
        if self.holds(v):
            return v
        # In units of the distance to a point of the set, the program's numbers are of size one.
        factor = np.linalg.cholesky(np.linalg.inv(norm.matrix))
        self.factor.value = factor * np.linalg.norm(np.linalg.solve(factor, v - self.inside))
        self.point.value = v
        assert projecting.solve(self.program, (1e-12, 1e-11, 1e-10, 1e-9)) <= 1e-9
        return self.w.value


DOMAINS = {
    "simplex": (
        vn.simplex(),
        ConvexSet(
            lambda w: [w >= 0, cp.sum(w) == 1],
            lambda v: np.all(v >= 0) and abs(np.sum(v) - 1) < 1e-14,
            UNIFORM,
        ),
        UNIFORM,
    ),
    "box": (
        vn.box(-0.1, 0.2),
        ConvexSet(lambda w: [w >= -0.1, w <= 0.2], lambda v: np.all((v >= -0.1) & (v <= 0.2)), 0.0),
        np.zeros(DIMENSION),
    ),
    "l1_ball": (
        vn.l1_ball(0.3),
        ConvexSet(lambda w: [cp.norm1(w) <= 0.3], lambda v: np.sum(np.abs(v)) <= 0.3, 0.0),
        np.zeros(DIMENSION),
    ),
    "polyhedron": (
        vn.polyhedron(ROWS, np.full(10, 0.2)),
        ConvexSet(lambda w: [w @ ROWS.T <= 0.2], lambda v: np.all(ROWS @ v <= 0.2), 0.0),
        np.zeros(DIMENSION),
    ),
    "intersection": (
        vn.intersection(vn.simplex(), vn.half_space(TILT, 0.1)),
        ConvexSet(
            lambda w: [w >= 0, cp.sum(w) == 1, TILT @ w <= 0.1],
            lambda v: np.all(v >= 0) and abs(np.sum(v) - 1) < 1e-14 and TILT @ v <= 0.1,
            UNIFORM,
        ),
        UNIFORM,
    ),
}


class DiagonalReference(reference.QuadraticNorm):
    """The diagonal of ``reference.FullMatrix``."""

    def __init__(self, d, squares=None):
        self.squares = np.zeros(d) if squares is None else squares
        self.matrix = np.diag(2 + self.squares)

    def observe(self, g):
        return DiagonalReference(len(g), self.squares + g**2)


NORMS = {
    "full_matrix": (vn.full_matrix_norm(), reference.FullMatrix(DIMENSION)),
    "full_matrix_root": (vn.full_matrix_root_norm(), reference.FullMatrixRoot(DIMENSION)),
    "diagonal": (vn.diagonal_norm(), DiagonalReference(DIMENSION)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "domain", "surrogate"),
    [("full_matrix", name, "tight") for name in DOMAINS]
    + [("full_matrix", "simplex", "paper"), ("full_matrix", "box", "paper")]
    + [("diagonal", "simplex", "tight"), ("full_matrix_root", "polyhedron", "tight")],
)
def test_algorithm_2_plays_the_points_of_the_reference_with_cvxpy(x64, norm, domain, surrogate):
    our_norm, their_norm = NORMS[norm]
    our_domain, their_domain, start = DOMAINS[domain]
    gradients = stream("drifting", 150, DIMENSION) + 0.3 * stream("pushing", 150, DIMENSION)
    gradients /= np.max(np.linalg.norm(gradients, axis=1))
    learner = vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(EPSILON))
    optimizer = vn.with_varying_norm(our_norm, vn.project(our_domain, learner, surrogate))
    game = play(optimizer, jnp.asarray(gradients), jnp.asarray(start))
    record = reference.play(
        their_norm, gradients, start, EPSILON, domain=their_domain, surrogate=surrogate
    )
    np.testing.assert_allclose(game.points, record.points, rtol=0, atol=1e-6)
    active = np.any(np.abs(record.points - record.unprojected) > 1e-9, axis=1)
    assert np.mean(active) > 0.1, "the constraint must be active in a good part of the rounds"

    state = game.states.learner_state
    assert np.all(jax.vmap(our_domain.contains)(jnp.asarray(state.projected)))
    assert int(state.inaccurate_projections[-1]) == 0
    assert 0 < float(state.largest_projection_error[-1]) <= 1e-8
    nearest = jax.jit(lambda point: our_domain.project(vn.lp_norm(), (), point).point)
    for u in np.vstack([np.random.default_rng(0).normal(size=(20, DIMENSION)), 10 * TILT]):
        u = np.asarray(nearest(jnp.asarray(u)))
        regret = np.sum(gradients * (game.points[:-1] - u))
        sums = state.projected_learner_state.direction_state.squared_dual_norm_sum
        size = record.norms[0].norm(u - start)
        bound = vn.certificates.thm_varynorm(
            size, sums[-1], EPSILON, surrogate=surrogate, squared_dual_norm_sum_before=sums[-2]
        )
        assert regret <= float(bound)


def low_rank_experts(experts, rank, rounds, seed):
    """Losses of +1 and -1: each round one of ``rank`` factors, biased towards one of its signs.

    The first expert is on the right side of every factor.
    """
    rng = np.random.default_rng(seed)
    loadings = rng.choice([-1.0, 1.0], size=(rank, experts))
    factor = np.arange(rounds) % rank
    signs = np.where(rng.random(rounds) < 0.65, -1.0, 1.0) * loadings[factor, 0]
    return signs[:, None] * loadings[factor]


@pytest.mark.slow
def test_regret_on_low_rank_experts_grows_with_the_rank_and_not_with_the_experts(x64):
    """``thm:fullmatrix`` on the simplex: sqrt(rank), hence doubled from rank 2 to rank 8."""

    def mean_regret(optimizer, experts, rank):
        start, regrets = jnp.full(experts, 1 / experts), []
        for seed in range(4):
            losses = low_rank_experts(experts, rank, 600, seed)
            points = play_points(optimizer, jnp.asarray(losses), start)
            regrets.append(np.sum(losses * points) - np.min(np.sum(losses, axis=0)))
        return np.mean(regrets)

    regret = {}
    for experts in (16, 48):
        optimizer = vn.full_matrix(10.0, lipschitz=experts**0.5, domain=vn.simplex())
        for rank in (2, 8):
            regret[experts, rank] = mean_regret(optimizer, experts, rank)
    for experts in (16, 48):
        assert regret[experts, 8] > 1.5 * regret[experts, 2], regret
    for rank in (2, 8):
        assert regret[48, rank] < 1.2 * regret[16, rank], regret


@functools.cache
def simplex_optimizer():
    return vn.full_matrix(domain=vn.simplex())


def test_solvers_run_under_scan_vmap_and_jit_in_one_trace():
    """No recompilation, no transfer to the host, and batches play what single games play."""
    traces = []

    @jax.jit
    @jax.vmap
    def run(gradients):
        traces.append(None)

        def step(carry, gradient):
            params, state = carry
            updates, state = simplex_optimizer().update(gradient, state, params)
            params = optax.apply_updates(params, updates)
            return (params, state), params

        start = jnp.full(DIMENSION, 1 / DIMENSION)
        return jax.lax.scan(step, (start, simplex_optimizer().init(start)), gradients)

    batch = jnp.asarray(
        np.stack([stream("drifting", 30, DIMENSION, seed) for seed in range(3)]), jnp.float32
    )
    with jax.transfer_guard_device_to_host("disallow"):
        (_, state), points = run(batch)
        run(batch + 0)
    assert len(traces) == 1
    assert np.all(np.asarray(points) >= -1e-6)
    np.testing.assert_allclose(np.sum(points, axis=2), 1, atol=1e-5)
    alone = play_points(simplex_optimizer(), batch[1], jnp.full(DIMENSION, 1 / DIMENSION))
    np.testing.assert_allclose(points[1, :-1], alone[1:], atol=1e-4)
    exact = optax.tree.get(state, "projected")
    assert np.all(np.asarray(exact) >= 0)
    np.testing.assert_array_equal(optax.tree.get(state, "inaccurate_projections"), 0)


def test_inaccurate_projections_are_counted_and_played():
    """A projection that is none: the state says in how many rounds, and how badly."""

    def careless(norm, norm_state, point):
        projection = vn.l2_ball(1.0).project(norm, norm_state, point)
        return projection._replace(error=jnp.float32(0.25), multipliers=())

    ball = vn.l2_ball(1.0)
    domain = vn.Domain(careless, ball.contains, ball.support)
    for tolerance, expected in ((None, 4), (0.5, 0)):
        learner = vn.scale_by_coin_betting(vn.ftrl_step())
        optimizer = vn.with_varying_norm(
            vn.lp_norm(), vn.project(domain, learner, tolerance=tolerance)
        )
        state = play(optimizer, jnp.ones((4, 2)) / 2, jnp.zeros(2)).final_state
        assert int(optax.tree.get(state, "inaccurate_projections")) == expected
        assert float(optax.tree.get(state, "largest_projection_error")) == 0.25


def test_domains_without_a_common_point_report_it():
    domain = vn.intersection(vn.box(0.0, 1.0), vn.half_space(np.ones(2), -1.0))
    projection = jax.jit(lambda v: domain.project(vn.lp_norm(), (), v))(jnp.array([2.0, 0.5]))
    assert float(projection.error) > 0.05


def test_multipliers_of_the_last_round_find_the_face_at_once(x64):
    """From there one face is tried; from nothing, several are."""
    domain, norm = vn.box(-0.3, 0.4), projecting.matrix_norm
    rng = np.random.default_rng(0)
    inverse = jnp.asarray(np.linalg.inv(projecting.matrix("badly_scaled", 12, rng)))
    point = jnp.asarray(rng.normal(size=12))

    @jax.jit
    def search(point, start):
        metric = metric_of(norm, inverse, point)
        constraint = domain.constraint(point)
        return active_set.solve(constraint, point, stiffness(metric, constraint, 12), start)

    cold = search(point, domain.first_multipliers(point))
    warm = search(1.001 * point, cold.multipliers)
    assert bool(cold.is_settled)
    assert int(cold.tried) > 1
    assert bool(warm.is_settled)
    assert int(warm.tried) == 1
    found = domain.project(norm, inverse, 1.001 * point, cold.multipliers)
    np.testing.assert_array_equal(found.multipliers, warm.multipliers)


@pytest.mark.parametrize("size", [1, 31, 300])
def test_fixed_entries_are_arranged_in_order(size):
    fixed = np.random.default_rng(size).random(size) < 0.4
    order, places, count = jax.jit(lambda fixed: active_set.arrange(fixed, more=2))(fixed)
    assert order.shape == (size + 2,)
    assert int(count) == np.sum(fixed)
    np.testing.assert_array_equal(order[: int(count)], np.flatnonzero(fixed))
    np.testing.assert_array_equal(places[fixed], np.arange(np.sum(fixed)))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 24, 31])
def test_products_in_kernels_are_products(size):
    rng = np.random.default_rng(size)
    rows, weights = rng.normal(size=(size, 5)), rng.normal(size=size)

    @vn.one_kernel
    def products(rows, weights):
        return in_kernels.combine(rows, weights), in_kernels.combine_once(rows, weights)

    for product in jax.jit(products)(jnp.asarray(rows, "float32"), jnp.asarray(weights, "float32")):
        np.testing.assert_allclose(product, weights @ rows, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [1, 7, 16, 24, 31, 64, 65, 128])
def test_sums_by_halves_are_sums(size):
    numbers = np.random.default_rng(size).normal(size=(2, size)).astype("float32")

    @vn.one_kernel
    def reduced(numbers):
        return in_kernels.add_up(numbers), in_kernels.largest(numbers), in_kernels.mean(numbers[0])

    total, largest, mean = jax.jit(reduced)(jnp.asarray(numbers))
    np.testing.assert_allclose(total, np.sum(numbers, axis=1), rtol=0, atol=1e-4)
    np.testing.assert_array_equal(largest, np.max(numbers, axis=1))
    np.testing.assert_allclose(mean, np.mean(numbers[0]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [length, in_kernels.length])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [3, 32, 100])
def test_lengths_neither_overflow_nor_vanish(x64, length, dtype, size):
    """Nor is a constant zero something else, with which XLA computes beforehand."""
    entries = np.random.default_rng(size).normal(size=size)
    largest = np.finfo(dtype).maxexp // 2
    for exponent in (-1.8 * largest, -largest, -10, 0, 10, largest, 1.8 * largest):
        vector = jnp.asarray(entries * 2.0 ** int(exponent), dtype)
        expected = np.linalg.norm(entries) * 2.0 ** int(exponent)
        np.testing.assert_allclose(jax.jit(length)(vector), expected, rtol=1e-5)
    assert jax.jit(lambda: length(jnp.zeros(size, dtype)))() == 0
    zeros = jnp.zeros(size, dtype)
    assert not np.any(jax.jacfwd(length)(zeros))
    assert np.isnan(length(zeros.at[0].set(np.nan)))


def test_a_step_before_the_first_face_saves_faces(monkeypatch):
    """On the way from one round's multipliers to the next one's."""
    rng = np.random.default_rng(0)
    size = 24
    root = rng.normal(size=(size, size)) * np.arange(1.0, size + 1) ** -1.5
    inverse = jnp.asarray(root @ root.T + 1e-3 * np.eye(size), jnp.float32)
    metric = metric_of(projecting.matrix_norm, inverse, jnp.zeros(size))
    constraint = vn.box(-0.3, 0.3).constraint(jnp.zeros(size))
    b = stiffness(metric, constraint, size)
    targets = jnp.asarray(rng.normal(size=(40, size)), jnp.float32)
    changes = jnp.asarray(0.03 * rng.normal(size=(40, size)), jnp.float32)

    def faces_tried():
        def search(target, start):
            return active_set.solve(constraint, target, b, start)

        def next_round(pair):
            last = search(pair[0], jnp.zeros(size))
            return search(pair[0] + pair[1], last.multipliers).tried

        return int(
            jnp.sum(jax.jit(lambda *pairs: jax.lax.map(next_round, pairs))(targets, changes))
        )

    with_step = faces_tried()
    monkeypatch.setattr(active_set, "RELAXATION", 0.0)
    assert with_step < faces_tried()


@pytest.mark.parametrize("size", [1, 5, ball.LARGEST_SHORT, ball.LARGEST_SHORT + 1, 64])
def test_balls_of_all_sizes_start_from_the_last_multipliers(size):
    """Small ones in one kernel, from the round before; larger ones, and from nothing, with care."""
    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size)) / np.sqrt(size)
    inverse = jnp.asarray(np.linalg.inv(np.eye(size) + 30 * root @ root.T), jnp.float32)
    point = jnp.asarray(2 * rng.normal(size=size) / np.sqrt(size) + 1, jnp.float32)
    domain = vn.l2_ball(0.5)
    project = jax.jit(functools.partial(domain.project, projecting.matrix_norm))
    cold = project(inverse, point, domain.first_multipliers(point))
    warm = project(inverse, 1.01 * point, cold.multipliers)
    again = project(inverse, 1.01 * point, domain.first_multipliers(point))
    for found in (cold, warm, again):
        assert bool(domain.contains(found.point))
        assert float(found.error) <= 1e-4
    np.testing.assert_allclose(warm.point, again.point, rtol=0, atol=1e-4)


@pytest.mark.parametrize("make", [lambda: vn.box(-0.3, 0.3), lambda: vn.l2_ball(0.7)])
def test_stiff_norms_without_a_matrix_are_no_other_norms_in_float32(make):
    """The inverse of a norm that is known by its eigenvectors is rounded where it is a matrix."""

    def to_primal(state, gradient):
        vectors, values = state
        return vectors @ ((gradient @ vectors) / values)

    def inverse(state):
        vectors, values = state

        def block(indices):
            rows = vectors if indices is None else vectors[indices]
            return (rows / values[None, :]) @ rows.T

        return vn.InverseMatrix(vectors**2 @ (1 / values), block)

    norm = projecting.matrix_norm._replace(to_primal=to_primal, inverse=inverse)
    project = jax.jit(functools.partial(make().project, norm))
    for seed in range(10):
        rng = np.random.default_rng(seed)
        vectors = np.linalg.qr(rng.normal(size=(6, 6)))[0].astype(np.float32)
        state = (vectors, np.geomspace(1, 1e8, 6).astype(np.float32))
        point = rng.normal(size=6).astype(np.float32)
        found = project(jax.tree.map(jnp.asarray, state), jnp.asarray(point))
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), (state, point))
            exact = np.asarray(project(*wide).point)
        assert np.linalg.norm(found.point - exact) <= 1e-3 * np.linalg.norm(point)


@pytest.mark.parametrize("make", [vn.simplex, vn.l1_ball, vn.l2_ball, lambda r: vn.box(-r, r)])
def test_projections_of_tiny_points_are_those_of_others_scaled(make):
    rng = np.random.default_rng(0)
    inverse = jnp.asarray(np.linalg.inv(projecting.matrix("random", 6, rng)), jnp.float32)
    point = jnp.asarray(rng.normal(size=6), jnp.float32)
    expected = make(0.5).project(projecting.matrix_norm, inverse, point).point
    for scale in (1e-20, 1e15):
        domain = make(0.5 * scale)
        found = domain.project(projecting.matrix_norm, inverse, scale * point)
        np.testing.assert_allclose(found.point / scale, expected, rtol=0, atol=1e-5)
        assert float(found.error) <= 1e-3


@pytest.mark.parametrize("make", [lambda: vn.box(-0.3, 0.4), lambda: vn.l2_ball(0.5)])
def test_projections_have_derivatives_in_forward_mode(x64, make):
    """From nothing, and from the multipliers of the round before; against differences."""
    domain, norm = make(), projecting.matrix_norm
    rng = np.random.default_rng(0)
    inverse = jnp.asarray(np.linalg.inv(projecting.matrix("random", 6, rng)))
    point, direction = jnp.asarray(rng.normal(size=(2, 6)))
    nothing = domain.first_multipliers(point)
    known = domain.project(norm, inverse, point).multipliers
    for start in (nothing, known):

        def project(point, start=start):
            return domain.project(norm, inverse, point, start).point

        jacobian = jax.jit(jax.jacfwd(project))(point)
        step = 1e-5 * direction
        difference = (project(point + step) - project(point - step)) / 2e-5
        np.testing.assert_allclose(jacobian @ direction, difference, rtol=0, atol=1e-7)


@pytest.mark.parametrize("size", [1, 24])
def test_the_last_row_of_an_inverse(size):
    factor = np.tril(np.random.default_rng(size).normal(size=(size, size))) + 3 * np.eye(size)
    row = jax.jit(vn.one_kernel(active_set.last_row_of_inverse))(jnp.asarray(factor, jnp.float32))
    np.testing.assert_allclose(row, np.linalg.inv(factor)[-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("sums", [2, 16])
def test_products_of_simplices_have_many_sums(x64, sums):
    """Few are a kernel's; more than fit into one are not."""
    each, norm = 64 // sums, projecting.matrix_norm
    domain = vn.product([vn.simplex() for _ in range(sums)])
    rng = np.random.default_rng(sums)
    inverse = jnp.asarray(np.linalg.inv(projecting.matrix("random", 64, rng)))
    point = [jnp.asarray(part) for part in rng.normal(size=(sums, each))]
    found = jax.jit(lambda point: domain.project(norm, inverse, point))(point)
    assert float(found.error) <= 1e-6
    assert bool(domain.contains(found.point))
    # Each normal is highest, and level, where its simplex is positive.
    for part, normal in zip(found.point, found.normal, strict=True):
        level = np.max(normal)
        np.testing.assert_allclose(np.where(part > 1e-9, normal, level), level, atol=1e-7)
    np.testing.assert_allclose(
        inverse @ jnp.concatenate(found.normal), jnp.concatenate(found.residual), atol=1e-9
    )


@pytest.mark.parametrize("size", [1, 5, ball.LARGEST_SHORT])
def test_one_kernel_solves_the_secular_equation_from_nearby(size):
    """``t = u + kappa B u`` and ``|u| = r``, from a multiplier that is wrong by five percent."""
    rng = np.random.default_rng(size)
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = (basis * np.geomspace(0.1, 10, size)) @ basis.T
    point, kappa = rng.normal(size=size), 3.0
    target, radius = point + kappa * matrix @ point, np.linalg.norm(point)
    numbers = (matrix, np.mean(np.diag(matrix)), target, radius, 1.05 * kappa)
    root = jax.jit(vn.one_kernel(short_lanczos.solve))(
        *(jnp.asarray(x, jnp.float32) for x in numbers)
    )
    np.testing.assert_allclose(root.multiplier, kappa, rtol=1e-3)
    np.testing.assert_allclose(root.point, point, rtol=0, atol=1e-3 * radius)
