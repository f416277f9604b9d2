"""The direction learner of ``eqn:ftrl``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import optax_varynorm as vn
from tests.playing import KINDS, play, stream

NORMS = {
    "l2": vn.lp_norm(),
    "l1.3": vn.lp_norm(1.3),
    "full_matrix": vn.full_matrix_norm(),
    "full_matrix_root": vn.full_matrix_root_norm(),
}


@pytest.mark.parametrize("length", [0.1, 30.0])  # inside the ball, and cut at its border
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_the_step_minimizes_its_objective(x64, norm, length):
    """A general solver on ``eqn:ftrl``, which knows nothing of duality maps but the norm."""
    dimension = 3
    gradients = jnp.asarray(stream("random", 30, dimension))
    state = norm.init(jnp.zeros(dimension))
    for gradient in gradients:
        state = norm.observe_gradient(state, gradient)
    theta = length * jnp.array([0.3, -1.0, 0.5])
    learner = vn.ftrl_step()
    before = vn.FTRLState(jnp.zeros(3), theta, jnp.asarray(2.0), jnp.asarray(0.0))
    geometry = vn.Geometry(norm, state, state)
    point, _ = learner.update(jnp.zeros(3), before, jnp.zeros(3), geometry=geometry)

    def length_of(x):
        return float(vn.primal_norm(norm, state, jnp.asarray(x)))

    def objective(x):
        return length_of(x) ** 2 * np.sqrt(1 + 2.0) / np.sqrt(2 * norm.strong_convexity) + x @ theta

    inside = {"type": "ineq", "fun": lambda x: 1 - length_of(x)}
    best = scipy.optimize.minimize(
        objective, 0.5 * np.asarray(point), constraints=[inside], method="SLSQP", tol=1e-12
    )
    assert length_of(point) <= 1 + 1e-12
    assert objective(np.asarray(point)) <= best.fun + 1e-8
    np.testing.assert_allclose(point, best.x, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_regret_stays_below_thm_constrainedftrl(x64, norm, kind):
    """Also against the worst comparator of the last unit ball, and with ``thm:ftrl``."""
    rounds, dimension = 200, 5
    gradients = stream(kind, rounds, dimension)
    game = play(
        vn.with_varying_norm(norm, vn.ftrl_step()), jnp.asarray(gradients), jnp.zeros(dimension)
    )
    final = game.final_state
    # ||.||_{T-1} has not seen the last gradient; ||.||_T is larger, so its ball is smaller.
    state = jax.tree.map(lambda leaf: leaf[-2], game.states.norm_state)
    theta = jnp.asarray(final.learner_state.gradient_sum)
    size = vn.dual_norm(norm, state, theta)
    worst = -norm.to_primal(state, theta) / jnp.where(size > 0, size, 1)
    comparator_norm = vn.primal_norm(norm, state, worst)
    assert comparator_norm <= 1 + 1e-9

    sums = game.states.learner_state.squared_dual_norm_sum
    regret = np.sum(gradients * (game.points[:-1] - np.asarray(worst)))
    sigma = norm.strong_convexity
    lemma = vn.certificates.thm_constrainedftrl(comparator_norm, sums[-1], sigma, sums[-2])
    assert regret <= lemma + 1e-9
    # psi_t = ||x||^2 sqrt(1 + S_t) / sqrt(2 sigma) is sqrt(2 sigma (1 + S_t))-strongly convex.
    theorem = vn.certificates.thm_ftrl(
        comparator_norm**2 * np.sqrt(1 + sums[-2]) / np.sqrt(2 * sigma),
        np.diff(sums),
        np.sqrt(2 * sigma * (1 + sums[:-1])),
    )
    assert regret <= theorem + 1e-9
    assert theorem <= lemma + 1e-9


def test_without_gradients_the_leader_stays_at_zero():
    norm = vn.full_matrix_norm()
    game = play(vn.with_varying_norm(norm, vn.ftrl_step()), jnp.zeros((5, 3)), jnp.zeros(3))
    assert not np.any(game.points)
