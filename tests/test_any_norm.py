"""The theorem is for any increasing sequence of norms: sums, one's own, and how to tell."""

import functools

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optax_varynorm as vn
from tests.playing import _play, play, stream

P = 1.25
# More than Clarabel can promise, which it warns of: its points are then exact to 1e-7.
PRECISELY = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


@functools.cache
def papers_norm():
    """``thm:fullmatrix`` with a base norm that is not Euclidean: l_p plus x'(I + G)x."""
    return vn.sum_of_norms(vn.lp_norm(P), vn.full_matrix_norm(2**-0.5))


@functools.cache
def matrix_from_its_formula():
    return vn.custom_norm(
        lambda matrix, x: x @ (matrix @ x),
        lambda matrix, g: matrix + jnp.outer(g, g),
        init=lambda params: 2 * jnp.eye(params.size, dtype=params.dtype),
        strong_convexity=1.0,
    )


def learner(norm):
    return vn.with_varying_norm(norm, vn.scale_by_coin_betting(vn.ftrl_step()))


def squared_by_cvxpy(x, gradients):
    root = np.linalg.cholesky(np.eye(x.size) + gradients.T @ gradients).T
    return cp.square(cp.pnorm(x, P)) + cp.sum_squares(root @ x)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_a_sum_agrees_with_cvxpy(x64):
    """The dual norm of each gradient, and the points of FTRL, inside and on the unit ball."""
    gradients = stream("drifting", 6, 5)
    optimizer = vn.with_varying_norm(papers_norm(), vn.ftrl_step())
    game = play(optimizer, jnp.asarray(gradients), jnp.zeros(5, jnp.float64))
    assert game.final_state.norm_state.largest_solver_residual < 1e-11
    squares = 0.0
    for t, gradient in enumerate(gradients):
        x = cp.Variable(5)
        ball = [squared_by_cvxpy(x, gradients[:t]) <= 1]
        dual = cp.Problem(cp.Maximize(gradient @ x), ball).solve(cp.CLARABEL, **PRECISELY)
        squares += dual**2
        ours = game.states.learner_state.squared_dual_norm_sum[t + 1]
        assert float(ours) == pytest.approx(squares, rel=1e-6)

        square = squared_by_cvxpy(x, gradients[: t + 1])
        leader = np.sqrt((1 + squares) / (2 * (P - 1))) * square + gradients[: t + 1].sum(0) @ x
        cp.Problem(cp.Minimize(leader), [square <= 1]).solve(cp.CLARABEL, **PRECISELY)
        np.testing.assert_allclose(game.points[t + 1], x.value, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_projections_in_a_sum_agree_with_cvxpy(x64):
    gradients, point = stream("drifting", 6, 5), jnp.asarray([1.0, -2.0, 0.5, 0.0, 1.5])
    norm = papers_norm()
    state = norm.init(point)
    for gradient in jnp.asarray(gradients):
        state = norm.observe_gradient(state, gradient)
    x = cp.Variable(5)
    for domain, inside in (
        (vn.l2_ball(1.0), cp.norm(x, 2) <= 1),
        (vn.half_space(jnp.ones(5), 0.25), cp.sum(x) <= 0.25),
    ):
        found = jax.jit(domain.project, static_argnums=0)(norm, state, point)
        distance = squared_by_cvxpy(np.asarray(point) - x, gradients)
        cp.Problem(cp.Minimize(distance), [inside]).solve(cp.CLARABEL, **PRECISELY)
        assert found.error < 1e-6
        np.testing.assert_allclose(found.point, x.value, atol=1e-5)


def test_the_full_matrix_formula_plays_as_the_full_matrix(x64):
    gradients, origin = jnp.asarray(stream("drifting", 40, 4)), jnp.zeros(4, jnp.float64)
    ours = play(learner(matrix_from_its_formula()), gradients, origin)
    theirs = play(learner(vn.full_matrix_norm()), gradients, origin)
    assert np.max(np.abs(theirs.points)) > 0.3
    np.testing.assert_allclose(ours.points, theirs.points, atol=1e-6)
    assert ours.final_state.norm_state.largest_solver_residual < 1e-11


@pytest.mark.slow
def test_a_sum_and_blocks_combine_in_a_batch(x64):
    """Under ``vmap`` as alone, with a regret below the bound of the combination."""
    optimizer = vn.track_regret(
        vn.combine(learner(papers_norm()), learner(vn.block_diagonal_norm(largest_block=2)))
    )
    streams = jnp.asarray(np.stack([stream(kind, 8, 4) for kind in ("drifting", "sparse")]))
    batch = jax.vmap(lambda gradients: _play(optimizer, gradients, jnp.zeros(4)))(streams)
    alone = play(optimizer, streams[1], jnp.zeros(4, jnp.float64))
    np.testing.assert_allclose(batch.points[1], alone.points, rtol=1e-8, atol=1e-10)
    for comparator in jnp.asarray(stream("random", 3, 4)):
        bound = vn.regret_bound(optimizer, alone.final_state, comparator)
        assert vn.regret(alone.final_state, comparator) <= bound


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.1, 1.03])
def test_a_sum_with_p_near_one_is_solved_in_float32(p):
    norm = vn.sum_of_norms(vn.lp_norm(p), vn.full_matrix_norm(2**-0.5))
    gradients = stream("random", 40, 20)
    state = norm.init(jnp.zeros(20))
    observe = jax.jit(norm.observe_gradient)
    for gradient in jnp.asarray(gradients, jnp.float32):
        state = observe(state, gradient)
    assert observe._cache_size() == 1
    assert state.largest_solver_residual < 1e-4
    with jax.enable_x64(True):
        exact = norm.init(jnp.zeros(20, jnp.float64))
        for gradient in jnp.asarray(gradients):
            exact = norm.observe_gradient(exact, gradient)
        assert exact.largest_solver_residual < 1e-11
        np.testing.assert_allclose(
            state.solution.point, exact.solution.point, atol=1e-4 * np.max(exact.solution.point)
        )


@pytest.mark.slow
def test_a_solution_that_was_not_found_shows():
    """Second derivatives of l_1.05 are infinite at zero: there Newton's method may not arrive."""
    norm = vn.custom_norm(
        lambda _, x: jnp.sum(jnp.abs(x) ** 1.05) ** (2 / 1.05), strong_convexity=0.05
    )
    state, residuals = norm.init(jnp.zeros(30)), []
    for gradient in jnp.asarray(stream("random", 20, 30), jnp.float32):
        state = norm.observe_gradient(state, gradient)
        missed = norm.to_dual(state, state.solved_leader) - state.seen_sum
        residuals.append(jnp.linalg.norm(missed) / jnp.linalg.norm(state.seen_sum))
        np.testing.assert_allclose(state.solver_residual, residuals[-1], rtol=1e-2, atol=1e-5)
    assert max(residuals) > 0.01
    np.testing.assert_allclose(state.largest_solver_residual, max(residuals), rtol=1e-2)


@pytest.mark.parametrize(
    "part", [vn.lp_norm(1.5, lipschitz=None), vn.full_matrix_norm(None), vn.feature_cover_norm()]
)
def test_a_sum_needs_norms_from_the_start(part):
    with pytest.raises(ValueError, match="positive from the start"):
        vn.sum_of_norms(vn.lp_norm(), part)


def test_a_custom_norm_must_say_how_strongly_convex_it_is():
    with pytest.raises(TypeError, match="strong_convexity"):
        vn.custom_norm(lambda _, x: x @ x)
    with pytest.raises(ValueError, match="more than one"):
        vn.custom_norm(lambda _, x: x @ x, strong_convexity=2.0)


def of_square(square, sigma=1.0, observe=lambda state, g: state):
    """A norm that knows its ``to_dual`` only."""
    to_dual = jax.grad(lambda x, state: square(state, x) / 2)
    return vn.simple_norm(
        init=lambda params: jnp.ones((), params.dtype),
        observe_gradient=observe,
        to_dual=lambda state, x: to_dual(x, state),
        to_primal=lambda state, g: g,
        strong_convexity=sigma,
    )


WRONG = {
    "Not increasing: ||x||_": of_square(
        lambda weight, x: weight * (x @ x), observe=lambda weight, g: weight * (1 - g @ g / 9)
    ),
    "Not convex": of_square(lambda _, x: jnp.sum(jnp.sqrt(jnp.abs(x))) ** 4),
    "Not 0.1-strongly convex": of_square(lambda _, x: jnp.max(jnp.abs(x)) ** 2, sigma=0.1),
    "Not homogeneous": of_square(lambda _, x: jnp.sum(x**4)),
    "Not symmetric": of_square(lambda _, x: jnp.sum(jnp.where(x > 0, x, 2 * x) ** 2)),
    "Not positive": of_square(lambda _, x: x[0] ** 2),
    "Not dual": of_square(lambda _, x: 2 * (x @ x)),
    "Not still": of_square(
        lambda weight, x: weight * (x @ x), observe=lambda weight, g: weight + 1
    ),
}


@pytest.mark.parametrize(("complaint", "norm"), WRONG.items(), ids=WRONG)
def test_what_is_no_norm_is_found_out(complaint, norm):
    gradients = jnp.asarray(stream("random", 5, 3), jnp.float32)
    with pytest.raises(ValueError, match="Not ") as caught:
        vn.check_norm(norm, gradients, samples=64)
    message = str(caught.value)
    assert message.startswith(complaint)
    assert "x = [" in message
    if "convex" in complaint:
        assert "y = [" in message


def test_the_vectors_of_a_complaint_show_what_it_says():
    square = lambda _, x: jnp.max(jnp.abs(x)) ** 2  # noqa: E731
    gradients = jnp.asarray(stream("random", 5, 3), jnp.float32)
    with pytest.raises(ValueError, match="strongly convex") as caught:
        vn.check_norm(of_square(square, sigma=0.5), gradients, samples=64)
    text = str(caught.value)
    p = float(text.split("at p = ")[1].split(",")[0])
    x, y = (
        np.array(text.split(f"{name} = [")[1].split("]")[0].split(), float) for name in ("x", "y")
    )
    chord = p * square(0, x) + (1 - p) * square(0, y) - 0.5 * p * (1 - p) * square(0, x - y)
    assert square(0, p * x + (1 - p) * y) > 1.001 * chord


def test_the_papers_norm_of_features_is_not_strongly_convex():
    gradients = jnp.asarray(0.1 * stream("random", 4, 3), jnp.float32)
    features = jnp.asarray(stream("random", 4, 3, seed=1), jnp.float32)
    norm = vn.max_feature_norm(capacity=4)
    with pytest.raises(ValueError, match="Not 1-strongly convex"):
        vn.check_norm(norm._replace(strong_convexity=1.0), gradients, features, samples=64)


def test_features_belong_to_norms_that_observe_them():
    gradients = jnp.ones((2, 3))
    with pytest.raises(ValueError, match="needs `features`"):
        vn.check_norm(vn.feature_cover_norm(), gradients)
    with pytest.raises(ValueError, match="needs `features`"):
        vn.check_norm(vn.lp_norm(), gradients, features=gradients)
