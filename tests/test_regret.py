"""Regret below every bound, on whatever stream Hypothesis finds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import optax_varynorm as vn
from tests import reference
from tests.playing import KINDS, play, play_points, stream

ROUNDS, DIMENSION = 48, 4
NORMS = {
    "l2": vn.lp_norm(),
    "l1.3": vn.lp_norm(1.3),
    "full_matrix": vn.full_matrix_norm(),
    "full_matrix_root": vn.full_matrix_root_norm(),
}
DOMAINS = {
    "half_space": vn.half_space(np.array([1.0, 1.0, 0.0, -1.0]), 0.1),
    "hyperplane": vn.hyperplane(np.array([1.0, 1.0, 0.0, -1.0]), 0.0),
    "affine": vn.affine(np.array([[1.0, 1.0, 0.0, -1.0], [0.0, 1.0, 2.0, 0.0]]), np.zeros(2)),
    "l2_ball": vn.l2_ball(0.5),
}
EPSILON = 0.5


@functools.cache
def algorithm(norm, domain=None, surrogate="tight"):
    learner = vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(EPSILON))
    if domain is not None:
        learner = vn.project(DOMAINS[domain], learner, surrogate)
    return vn.with_varying_norm(NORMS[norm], learner)


@functools.cache
def norm_of(norm):
    return jax.jit(functools.partial(vn.primal_norm, NORMS[norm]))


@functools.cache
def nearest_in(domain):
    return jax.jit(lambda point: DOMAINS[domain].project(vn.lp_norm(), (), point).point)


@functools.cache
def all_in(domain):
    return jax.jit(jax.vmap(DOMAINS[domain].contains))


def shorten(gradients):
    """Gradients of l_2, hence also of l_q, length one at most."""
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return np.where(lengths > 1, gradients / np.where(lengths > 0, lengths, 1), gradients)


# Any numbers, mostly repeated or zero: sparse, low-rank and sign-flipping streams are all near.
gradient_streams = st.one_of(
    hnp.arrays(
        np.float64,
        (ROUNDS, DIMENSION),
        elements=st.floats(-1, 1),
        fill=st.sampled_from([0.0, 1.0, -1.0, 0.5]),
    ).map(shorten),
    st.builds(
        lambda kind, seed: stream(kind, ROUNDS, DIMENSION, seed),
        st.sampled_from(KINDS),
        st.integers(0, 1000),
    ),
    st.just(reference.section_adagrad_sequence(DIMENSION, ROUNDS)),
)
comparators = hnp.arrays(np.float64, DIMENSION, elements=st.floats(-1e4, 1e4))


def squared_dual_norm_sums(state):
    learner = state.learner_state
    inner = getattr(learner, "projected_learner_state", learner)
    return inner.direction_state.squared_dual_norm_sum


def last_norm(game, norm, u):
    """``||u||_{T-1}``: the norm before the last gradient."""
    state = jax.tree.map(lambda leaf: leaf[-2], game.states.norm_state)
    return float(norm_of(norm)(state, jnp.asarray(u)))


@pytest.mark.parametrize("norm", NORMS)
@given(gradients=gradient_streams, comparator=comparators)
def test_regret_of_algorithm_1_stays_below_thm_1dred(norm, gradients, comparator):
    with jax.enable_x64(True):
        game = play(algorithm(norm), jnp.asarray(gradients), jnp.zeros(DIMENSION))
        regret = np.sum(gradients * (game.points[:-1] - comparator))
        sums = squared_dual_norm_sums(game.states)
        size = last_norm(game, norm, comparator)
        sigma = NORMS[norm].strong_convexity
        bound = float(vn.certificates.thm_1dred(size, sums[-1], EPSILON, sigma, sums[-2]))
        assert regret <= bound * (1 + 1e-9)
        assert int(game.final_state.clipped_rounds) == 0


@pytest.mark.parametrize("surrogate", ["tight", "paper"])
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("norm", ["l2", "full_matrix", "full_matrix_root"])
@given(gradients=gradient_streams, comparator=comparators)
def test_regret_of_algorithm_2_stays_below_thm_varynorm(
    norm, domain, surrogate, gradients, comparator
):
    with jax.enable_x64(True):
        game = play(
            algorithm(norm, domain, surrogate), jnp.asarray(gradients), jnp.zeros(DIMENSION)
        )
        u = np.asarray(nearest_in(domain)(jnp.asarray(comparator)))
        regret = np.sum(gradients * (game.points[:-1] - u))
        sums = squared_dual_norm_sums(game.states)
        size = last_norm(game, norm, u)
        bound = vn.certificates.thm_varynorm(
            size, sums[-1], EPSILON, surrogate=surrogate, squared_dual_norm_sum_before=sums[-2]
        )
        assert regret <= float(bound) * (1 + 1e-9)
        assert np.all(all_in(domain)(jnp.asarray(game.points)))


@given(gradients=gradient_streams, comparator=comparators)
def test_regret_stays_below_thm_fullmatrixdetail(gradients, comparator):
    with jax.enable_x64(True):
        game = play(algorithm("full_matrix"), jnp.asarray(gradients), jnp.zeros(DIMENSION))
        regret = np.sum(gradients * (game.points[:-1] - comparator))
        size = np.sqrt(2 * comparator @ comparator + np.sum((gradients @ comparator) ** 2))
        rank = np.linalg.matrix_rank(gradients)
        bound = float(vn.certificates.thm_fullmatrixdetail(size, rank, ROUNDS, EPSILON))
        assert regret <= bound * (1 + 1e-9)
        # The step of the proof that this theorem adds.
        assert squared_dual_norm_sums(game.final_state) <= rank * np.log(ROUNDS + 1) + 1e-9


@given(gradients=gradient_streams, comparator=comparators)
def test_regret_stays_below_thm_adagraddetail(gradients, comparator):
    with jax.enable_x64(True):
        game = play(algorithm("full_matrix_root"), jnp.asarray(gradients), jnp.zeros(DIMENSION))
        regret = np.sum(gradients * (game.points[:-1] - comparator))
        _, singular_values, vectors = np.linalg.svd(gradients)
        in_basis = vectors @ comparator
        size = np.sqrt(comparator @ comparator + in_basis**2 @ singular_values)
        root_trace = np.sum(singular_values)
        bound = float(vn.certificates.thm_adagraddetail(size, root_trace, EPSILON))
        assert regret <= bound * (1 + 1e-9)
        assert squared_dual_norm_sums(game.final_state) <= 2 * root_trace + 1e-9


@pytest.mark.parametrize("norm", NORMS)
@given(gradient=hnp.arrays(np.float64, (1, DIMENSION), elements=st.floats(-0.5, 0.5)))
def test_one_round_costs_nothing(norm, gradient):
    """T = 1: the first point is the start, and every bound holds there."""
    with jax.enable_x64(True):
        game = play(algorithm(norm), jnp.asarray(gradient), jnp.zeros(DIMENSION))
        assert not np.any(game.points[0])
        u = -gradient[0]
        size = float(norm_of(norm)(NORMS[norm].init(jnp.zeros(DIMENSION)), jnp.asarray(u)))
        total = squared_dual_norm_sums(game.final_state)
        bound = vn.certificates.thm_1dred(size, total, EPSILON, NORMS[norm].strong_convexity, 0.0)
        assert -np.sum(gradient * u) <= float(bound)


@pytest.mark.parametrize("domain", [None, *DOMAINS])
@pytest.mark.parametrize("norm", ["l2", "full_matrix", "full_matrix_root"])
@given(gradients=gradient_streams)
def test_the_start_never_costs_more_than_epsilon(norm, domain, gradients):
    with jax.enable_x64(True):
        game = play(algorithm(norm, domain), jnp.asarray(gradients), jnp.zeros(DIMENSION))
        assert np.sum(gradients * game.points[:-1]) <= EPSILON * (1 + 1e-9)


@given(gradients=gradient_streams)
def test_the_start_never_costs_more_than_epsilon_with_the_papers_surrogate(gradients):
    optimizer = ready_made_on_a_half_space()
    with jax.enable_x64(True):
        game = play(optimizer, jnp.asarray(gradients), jnp.zeros(DIMENSION))
        assert np.sum(gradients * game.points[:-1]) <= EPSILON * (1 + 1e-9)


@functools.cache
def ready_made_on_a_half_space():
    return vn.fixed_norm(p=1.5, epsilon=EPSILON, domain=DOMAINS["half_space"])


@pytest.mark.parametrize("norm", ["l2", "full_matrix", "full_matrix_root"])
@given(gradients=gradient_streams)
def test_wealth_is_epsilon_minus_the_losses_of_the_scale(norm, gradients):
    with jax.enable_x64(True):
        game = play(algorithm(norm), jnp.asarray(gradients), jnp.zeros(DIMENSION))
        learner = game.states.learner_state
        losses = np.sum(gradients * game.points[:-1], axis=1)
        wealth = np.exp(learner.scale_state.log_wealth)
        identity = EPSILON - np.concatenate([[0.0], np.cumsum(losses)])
        np.testing.assert_allclose(wealth, identity, rtol=1e-9, atol=1e-9 * np.max(wealth))
        assert np.all(wealth > 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("surrogate", "expected"),
    [
        ("paper", {"full_matrix_root": 31.837, "l2": 37.333, "full_matrix": 41.176}),
        ("tight", {"full_matrix_root": 26.846, "l2": 29.721, "full_matrix": 31.070}),
    ],
)
def test_the_root_norm_wins_on_the_papers_sequence(x64, surrogate, expected):
    """Section ``sec:adagrad`` inside the unit ball; the numbers are ``reference.play``'s."""
    gradients = vn.certificates.sec_adagrad(64, 768)
    comparator = -np.eye(64)[-1]
    regret = {}
    for norm in expected:
        learner = vn.project(
            vn.l2_ball(1.0), vn.scale_by_coin_betting(vn.ftrl_step()), surrogate=surrogate
        )
        points = play_points(vn.with_varying_norm(NORMS[norm], learner), gradients, jnp.zeros(64))
        regret[norm] = np.sum(np.asarray(gradients) * (np.asarray(points) - comparator))
    assert regret["full_matrix_root"] < min(regret["l2"], regret["full_matrix"])
    for norm, value in expected.items():
        np.testing.assert_allclose(regret[norm], value, atol=1e-3)


def test_the_sequence_is_the_papers(x64):
    ours = vn.certificates.sec_adagrad(16, 72)
    np.testing.assert_allclose(ours, reference.section_adagrad_sequence(16, 72), atol=1e-15)
    total = np.sum(np.asarray(ours), axis=0)
    np.testing.assert_allclose(total, np.eye(16)[-1] * (72 - 32) / 4, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1)
    low_rank = vn.certificates.sec_adagrad(16, 72, start_directions=4)
    assert np.linalg.matrix_rank(low_rank) == 5
    drifting = vn.certificates.sec_adagrad(16, 72, drift=np.sqrt(0.5))
    np.testing.assert_allclose(np.asarray(drifting)[32:, -1], np.sqrt(0.5))


@pytest.mark.parametrize(
    "arguments", [(15, 60), (16, 30), (16, 41), (16, 72, 0), (16, 72, 17), (16, 72, 4, 1.5)]
)
def test_impossible_sequences_are_refused(arguments):
    with pytest.raises(ValueError, match="must"):
        vn.certificates.sec_adagrad(*arguments)


@given(
    comparator=st.floats(1e-6, 1e6),
    squares=st.floats(0, 1e6),
    epsilon=st.floats(1e-4, 1e4),
)
def test_thm_fullonedolo_covers_the_best_fraction(comparator, squares, epsilon):
    """Before constants are rounded, the proof bounds the regret for every fraction v by

    epsilon + |u| ((log(|u| sqrt(1 + 4 Q) / (epsilon v)) - 1) / v + (5 + 6 Q) v / 2).
    """

    def raw(v):
        logarithm = np.log(comparator * np.sqrt(1 + 4 * squares) / (epsilon * v))
        return epsilon + comparator * ((logarithm - 1) / v + (5 + 6 * squares) * v / 2)

    best = scipy.optimize.minimize_scalar(
        lambda log_v: raw(np.exp(log_v)), bounds=(-40, np.log(0.5)), method="bounded"
    )
    with jax.enable_x64(True):
        bound = float(vn.certificates.thm_fullonedolo(comparator, squares, epsilon))
    assert best.fun <= bound * (1 + 1e-9)


@pytest.mark.parametrize(("u", "squares"), [(3.0, 100.0), (-3.0, 0.0)])
def test_thm_fullonedolo_is_its_formula(x64, u, squares):
    """The bound has slack that no regret reaches, so its constants are pinned here."""
    log = np.log(np.e + 3.0 * (7 + 4 * squares) / 0.5)
    expected = 0.5 + 2 * 3.0 * max(np.sqrt((3 + 3 * squares) * log), 2 * log)
    np.testing.assert_allclose(
        vn.certificates.thm_fullonedolo(u, squares, 0.5), expected, rtol=1e-12
    )


@pytest.mark.parametrize("surrogate", ["tight", "paper"])
def test_the_detailed_bounds_are_thm_varynorm(x64, surrogate):
    np.testing.assert_allclose(
        vn.certificates.thm_fullmatrixdetail(2.0, 3, 10, 0.1, 0.3, surrogate),
        vn.certificates.thm_varynorm(2.0, 3 * np.log(11), 0.1, 0.3, surrogate),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        vn.certificates.thm_adagraddetail(2.0, 7.0, 0.1, 2.0, surrogate),
        vn.certificates.thm_varynorm(2.0, 7.0, 0.1, 1.0, surrogate),
        rtol=1e-12,
    )


@pytest.mark.parametrize("sigma", [1.0, 0.3])
def test_the_bounds_follow_from_one_another(x64, sigma):
    """With Algorithm 1's constant the lemma's two terms each shrink by sqrt(2)."""
    size, total = 2.0, 5.0
    bettor = vn.certificates.thm_fullonedolo(size, total, 0.1)
    direction = size * vn.certificates.thm_constrainedftrl(1.0, total, sigma)
    reduction = vn.certificates.thm_1dred(size, total, 0.1, sigma)
    assert bettor + direction <= reduction
    np.testing.assert_allclose(
        vn.certificates.thm_varynorm(size, total, 0.1, sigma, "paper"), 2 * reduction
    )
    np.testing.assert_allclose(
        vn.certificates.thm_varynorm(size, total, 0.1, sigma, "tight"), reduction
    )


def test_bounds_work_in_float32_and_on_arrays():
    bounds = vn.certificates.thm_fullmatrixdetail(jnp.array([0.0, 1.0, 1e6]), 3, 1000, 0.5)
    assert bounds.shape == (3,)
    assert bounds[0] == 0.5
    assert np.all(np.diff(bounds) > 0)
