"""Algorithms 1 and 2 play the points of the literal transcription in ``reference.py``."""

import jax.numpy as jnp
import numpy as np
import pytest

import optax_varynorm as vn
from tests import reference
from tests.playing import play, stream

ROUNDS = 1000
EPSILON = 10.0
DIMENSIONS = (1, 2, 7, pytest.param(40, marks=pytest.mark.slow))
# Compilation takes most of the time: with a domain, seven dimensions stand for the small ones.
DIMENSIONS_WITH_A_DOMAIN = [
    7,
    *(pytest.param(d, marks=pytest.mark.slow) for d in (1, 2, 40)),
]


def norm_pair(name, dimension, lipschitz=1.0):
    match name:
        case "full_matrix":
            ours = vn.full_matrix_norm(lipschitz)
            return ours, reference.FullMatrix(dimension, lipschitz)
        case "full_matrix_root":
            ours = vn.full_matrix_root_norm(lipschitz)
            return ours, reference.FullMatrixRoot(dimension, lipschitz)
        case _:
            p = float(name.removeprefix("l"))
            return vn.lp_norm(p, lipschitz), reference.Lp(dimension, lipschitz, p)


def domain_pair(name, start):
    """Domains around the start that the unconstrained learner leaves again and again."""
    dimension = len(start)
    rng = np.random.default_rng(dimension)
    a = rng.normal(size=dimension)
    match name:
        case "whole_space":
            return vn.whole_space(), reference.L2Ball(1e300, start)
        case "half_space":
            a = np.ones(dimension)  # what the stream "pushing" pushes against
            b = a @ start + 0.01
            return vn.half_space(a, b), reference.HalfSpace(a, b)
        case "hyperplane":
            # The start is zero, so <a, start> = 0 without rounding: both sides agree that it lies
            # in the plane, where the surrogate is discontinuous.
            return vn.hyperplane(a, 0.0), reference.Hyperplane(a, 0.0)
        case "affine":
            m = rng.normal(size=(max(1, dimension // 3), dimension))
            return vn.affine(m, np.zeros(len(m))), reference.Affine(m, np.zeros(len(m)))
        case "l2_ball":
            return vn.l2_ball(0.05, start), reference.L2Ball(0.05, start)


def stream_for(domain, dimension):
    """A stream that makes the constraint active in a good part of the rounds."""
    return stream(
        "pushing" if domain in ("half_space", "l2_ball") else "drifting", ROUNDS, dimension
    )


def start_for(domain, dimension):
    if domain in ("hyperplane", "affine"):
        return np.zeros(dimension)
    return np.linspace(-0.5, 0.7, dimension)


def algorithm_2(norm, domain, surrogate):
    learner = vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(EPSILON))
    return vn.with_varying_norm(norm, vn.project(domain, learner, surrogate))


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("norm", ["full_matrix", "full_matrix_root", "l2.0", "l1.5", "l1.1"])
def test_algorithm_1_matches_the_reference(x64, norm, dimension):
    ours, theirs = norm_pair(norm, dimension)
    gradients = stream("drifting", ROUNDS, dimension)
    start = np.linspace(-0.5, 0.7, dimension)
    learner = vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(EPSILON))
    game = play(vn.with_varying_norm(ours, learner), jnp.asarray(gradients), jnp.asarray(start))
    record = reference.play(theirs, gradients, start, EPSILON)
    np.testing.assert_allclose(game.points, record.points, rtol=0, atol=1e-9)
    assert np.max(np.abs(record.points - start)) > 0.5  # the learner went somewhere


@pytest.mark.parametrize("surrogate", ["tight", "paper"])
@pytest.mark.parametrize("domain", ["whole_space", "half_space", "hyperplane", "affine", "l2_ball"])
@pytest.mark.parametrize("dimension", DIMENSIONS_WITH_A_DOMAIN)
@pytest.mark.parametrize("norm", ["full_matrix", "full_matrix_root", "l2.0"])
def test_algorithm_2_matches_the_reference(x64, norm, dimension, domain, surrogate):
    start = start_for(domain, dimension)
    our_norm, their_norm = norm_pair(norm, dimension)
    our_domain, their_domain = domain_pair(domain, start)
    gradients = stream_for(domain, dimension)
    game = play(
        algorithm_2(our_norm, our_domain, surrogate), jnp.asarray(gradients), jnp.asarray(start)
    )
    record = reference.play(
        their_norm, gradients, start, EPSILON, domain=their_domain, surrogate=surrogate
    )
    np.testing.assert_allclose(game.points, record.points, rtol=0, atol=1e-9)
    exact = game.states.learner_state.projected
    np.testing.assert_allclose(exact, record.points, rtol=0, atol=1e-9)

    active = np.any(record.points != record.unprojected, axis=1)
    if domain != "whole_space":
        assert np.mean(active) > 0.2, "the constraint must be active in a good part of the rounds"


@pytest.mark.parametrize("domain", ["half_space", "hyperplane"])
@pytest.mark.parametrize("p", [1.5, 1.8])
def test_algorithm_2_matches_the_reference_in_lp_norms(x64, p, domain):
    """For p near one the reference itself loses digits: it takes the power p - 1 of rounding."""
    start = start_for(domain, 7)
    our_norm, their_norm = norm_pair(f"l{p}", 7)
    our_domain, their_domain = domain_pair(domain, start)
    gradients = stream_for(domain, 7)
    game = play(
        algorithm_2(our_norm, our_domain, "paper"), jnp.asarray(gradients), jnp.asarray(start)
    )
    record = reference.play(
        their_norm, gradients, start, EPSILON, domain=their_domain, surrogate="paper"
    )
    np.testing.assert_allclose(game.points, record.points, rtol=0, atol=1e-9)


@pytest.mark.parametrize("surrogate", ["tight", pytest.param("paper", marks=pytest.mark.slow)])
@pytest.mark.parametrize("domain", ["none", "half_space", "hyperplane", "affine", "l2_ball"])
@pytest.mark.parametrize("dimension", DIMENSIONS_WITH_A_DOMAIN)
@pytest.mark.parametrize("norm", ["full_matrix", "full_matrix_root", "l2.0"])
def test_float32_stays_within_a_thousandth(norm, dimension, domain, surrogate):
    start = start_for(domain, dimension)
    our_norm, their_norm = norm_pair(norm, dimension)
    gradients = stream_for(domain, dimension)
    learner = vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(EPSILON))
    their_domain = None
    if domain != "none":
        our_domain, their_domain = domain_pair(domain, start)
        learner = vn.project(our_domain, learner, surrogate)
    game = play(
        vn.with_varying_norm(our_norm, learner),
        jnp.asarray(gradients, jnp.float32),
        jnp.asarray(start, jnp.float32),
    )
    assert game.points.dtype == np.float32
    record = reference.play(
        their_norm, gradients, start, EPSILON, domain=their_domain, surrogate=surrogate
    )
    # A hyperplane in one dimension is a point: what the learner plays before it is projected is
    # the size to compare with.
    scale = np.max(np.linalg.norm(record.unprojected - start, axis=1))
    compared = len(record.points)
    if domain != "none":
        compared = rounds_until_rounding_decides(game.states.learner_state, record)
        # Which round that is, is chance: 354 of 1,000 is the earliest, on the ball.
        assert compared > ROUNDS // 4
    error = np.max(np.linalg.norm((game.points - record.points)[:compared], axis=1))
    assert error <= 1e-3 * scale


def rounds_until_rounding_decides(ours, record):
    """How many points there are until float32 sees one on the other side of the border.

    There the surrogates jump between two valid subgradients and the runs part; it may happen only
    within rounding of the border.
    """
    theirs = record.unprojected - record.points
    parted = np.any(ours.residual != 0, axis=1) != np.any(theirs != 0, axis=1)
    if not np.any(parted):
        return len(parted)
    first = int(np.argmax(parted))
    depth = max(np.linalg.norm(ours.residual[first]), np.linalg.norm(theirs[first]))
    assert depth <= 1e-5 * np.linalg.norm(record.unprojected[first])
    return first + 1


@pytest.mark.parametrize("norm", ["full_matrix", "full_matrix_root", "l2.0"])
def test_a_lipschitz_bound_changes_units_only(x64, norm):
    """Gradients L times longer with ``lipschitz=L`` and ``epsilon`` in units of loss."""
    lipschitz, epsilon = 30.0, 6.0
    ours, theirs = norm_pair(norm, 7, lipschitz)
    gradients = lipschitz * stream("drifting", 300, 7)
    learner = vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(epsilon))
    game = play(vn.with_varying_norm(ours, learner), jnp.asarray(gradients), jnp.zeros(7))
    record = reference.play(theirs, gradients, np.zeros(7), epsilon=epsilon)
    np.testing.assert_allclose(game.points, record.points, rtol=0, atol=1e-9)

    _, unit = norm_pair(norm, 7)
    unit_record = reference.play(unit, gradients / lipschitz, np.zeros(7), epsilon=epsilon)
    np.testing.assert_allclose(game.points * lipschitz, unit_record.points, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("ready_made", "norm"),
    [
        (vn.full_matrix, "full_matrix"),
        (vn.full_matrix_adagrad, "full_matrix_root"),
        (vn.fixed_norm, "l2.0"),
    ],
)
def test_ready_made_optimizers_with_lipschitz_one_are_the_paper(x64, ready_made, norm):
    _, theirs = norm_pair(norm, 7)
    gradients = stream("drifting", 300, 7)
    start = start_for("l2_ball", 7)
    our_domain, their_domain = domain_pair("l2_ball", start)
    for domain, reference_domain in ((None, None), (our_domain, their_domain)):
        optimizer = ready_made(epsilon=0.5, lipschitz=1.0, domain=domain)
        game = play(optimizer, jnp.asarray(gradients), jnp.asarray(start))
        record = reference.play(theirs, gradients, start, epsilon=0.5, domain=reference_domain)
        np.testing.assert_allclose(game.points, record.points, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_the_order_of_the_tree_does_not_matter(x64):
    """A dictionary of leaves plays the same points as the flat vector."""
    gradients = jnp.asarray(stream("drifting", 200, 7))
    tree = {"a": gradients[:, :1], "b": {"c": gradients[:, 1:].reshape(200, 2, 3)}}
    start = {"a": jnp.zeros(1), "b": {"c": jnp.zeros((2, 3))}}
    for optimizer in (vn.full_matrix(), vn.full_matrix_adagrad(), vn.fixed_norm(p=1.5)):
        flat = play(optimizer, gradients, jnp.zeros(7)).points
        leaves = play(optimizer, tree, start).points
        joined = np.concatenate([leaves["a"], leaves["b"]["c"].reshape(201, 6)], axis=1)
        np.testing.assert_allclose(joined, flat, rtol=0, atol=1e-12)
