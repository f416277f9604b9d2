"""The growing inverse: as accurate as a dense solve, in one read of the matrix a round."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from optax_varynorm.norm_library import growing_inverse
from optax_varynorm.norm_library.full_matrix_root import (
    ACCURACY,
    _inverse_root_quadrature,
)
from tests import reference
from tests.playing import play, stream


def drifting_low_rank(rounds, dimension, seed=0):
    rng = np.random.default_rng(seed)
    turn = np.linspace(0, 2, rounds)[:, None]
    coefficients = rng.normal(size=(rounds, 8))
    first, second = rng.normal(size=(2, 8, dimension))
    g = coefficients @ first * np.cos(turn) + coefficients @ second * np.sin(turn)
    return g / np.linalg.norm(g, axis=1, keepdims=True)


STREAMS = {
    "random": functools.partial(stream, "random"),
    "power_law": functools.partial(stream, "power_law"),
    "drifting_low_rank": drifting_low_rank,
}


def observe_all(norm, gradients):
    start = norm.init(jnp.zeros(gradients.shape[1], gradients.dtype))
    scan = jax.jit(
        lambda s, g: jax.lax.scan(lambda s, g: (norm.observe_gradient(s, g), None), s, g)
    )
    return scan(start, gradients)[0]


@pytest.mark.parametrize("kind", STREAMS)
def test_the_inverse_lasts_a_hundred_thousand_rounds_in_float32(kind):
    rounds, dimension = 100_000, 64
    gradients = STREAMS[kind](rounds, dimension).astype(np.float32)
    state = observe_all(vn.full_matrix_norm(), jnp.asarray(gradients)).inverse
    exact = gradients.astype(np.float64)
    matrix = 2 * np.eye(dimension) + exact.T @ exact
    values, vectors = np.linalg.eigh(matrix)
    root = (vectors * np.sqrt(values)) @ vectors.T

    parts = [np.asarray(part, np.float64) for part in state[:3]]
    inverse = parts[0] + parts[1] - parts[2].T @ parts[2]
    assert np.linalg.norm(root @ inverse @ root - np.eye(dimension), 2) < 1e-5
    # What a matrix-vector product sees is the rounded inverse.
    rounded = parts[0] - parts[2].T @ parts[2]
    assert np.linalg.norm(root @ rounded @ root - np.eye(dimension), 2) < 1e-2

    leader = np.linalg.solve(matrix, np.sum(exact, axis=0))
    error = np.linalg.norm(root @ (np.asarray(state.leader) - leader))
    assert error < 1e-3 * np.linalg.norm(root @ leader)
    probes = jnp.asarray(np.random.default_rng(0).normal(size=(100, dimension)), jnp.float32)
    squares = jax.vmap(lambda g: g @ growing_inverse.times(state, g))(probes)
    assert np.all(np.asarray(squares) > 0)


@pytest.mark.parametrize("make", [vn.full_matrix, vn.full_matrix_adagrad])
def test_the_direction_keeps_its_course_in_float32(make):
    """One gradient for 200,000 rounds: the direction is its own, exactly."""
    optimizer = make(lipschitz=1.0)
    gradient = jnp.array([0.6, -0.8])

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    carry = (jnp.zeros(2), optimizer.init(jnp.zeros(2)))
    (direction, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=200_000))(carry)
    np.testing.assert_allclose(direction[0] / direction[1], -0.75, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["full_matrix", "full_matrix_adagrad"])
@pytest.mark.parametrize("kind", ["drifting", "power_law"])
def test_ten_thousand_rounds_match_the_reference(x64, norm, kind):
    gradients = stream(kind, 10_000, 8)
    make, theirs = {
        "full_matrix": (vn.full_matrix, reference.FullMatrix),
        "full_matrix_adagrad": (vn.full_matrix_adagrad, reference.FullMatrixRoot),
    }[norm]
    game = play(make(lipschitz=1.0), jnp.asarray(gradients), jnp.zeros(8))
    record = reference.play(theirs(8), gradients, np.zeros(8))
    np.testing.assert_allclose(game.points, record.points, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dimension", [1, 3, 24, 130])
def test_flushed_or_not_the_inverse_is_the_same(x64, dimension):
    """After every round, before, at and after a flush."""
    capacity = growing_inverse.pending_capacity(dimension)
    gradients = stream("random", 2 * capacity + 1, dimension)
    norm = vn.full_matrix_norm()
    state = norm.init(jnp.zeros(dimension))
    matrix = 2 * np.eye(dimension)
    for gradient in gradients:
        state = norm.observe_gradient(state, jnp.asarray(gradient))
        matrix += np.outer(gradient, gradient)
        inverse = np.linalg.inv(matrix)
        ours = state.inverse
        np.testing.assert_allclose(growing_inverse.dense(ours), inverse, atol=1e-12)
        np.testing.assert_allclose(ours.diagonal, np.diag(inverse), atol=1e-12)
        np.testing.assert_allclose(
            growing_inverse.times(ours, jnp.asarray(gradient)), inverse @ gradient, atol=1e-12
        )
        leader = inverse @ state.received_sum
        np.testing.assert_allclose(ours.leader, leader, atol=1e-12)
        np.testing.assert_allclose(norm.to_primal(state, state.received_sum), leader, atol=1e-12)
    np.testing.assert_allclose(state.received_sum, np.sum(gradients, axis=0), atol=1e-12)


A_PRODUCT = ["200,1", "33,1", "1,200"]
A_FLUSH = ["200,200"]


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (vn.full_matrix(lipschitz=1.0), 2 * A_PRODUCT + A_FLUSH),
        # One more product in the rare loop that starts the matrix, or a coordinate, afresh, and
        # in all of them one for the dual point of another sum than the learner's.
        (
            vn.with_varying_norm(
                vn.full_matrix_norm(None), vn.scale_by_coin_betting(vn.ftrl_step())
            ),
            3 * A_PRODUCT + A_FLUSH,
        ),
        (vn.full_matrix(), 3 * A_PRODUCT + 2 * A_FLUSH),
    ],
    ids=["known", "isotropic", "coordinate"],
)
def test_a_round_reads_the_matrix_once(optimizer, expected):
    """The compiled round multiplies one 200 x 200 matrix with one vector, outside of loops."""
    params = {"a": jnp.zeros(50), "b": jnp.zeros(150)}
    compiled = jax.jit(optimizer.update).lower(params, optimizer.init(params), params).compile()
    text = compiled.as_text()
    for part, products in ((text, expected), (text[text.index("\nENTRY") :], A_PRODUCT)):
        found = re.findall(r"= f32\[([\d,]+)\]\S* dot\(", part)
        assert sorted(found) == sorted(products)


@pytest.mark.parametrize(
    "norm",
    [
        vn.full_matrix_norm(),
        vn.full_matrix_norm(None),
        vn.full_matrix_norm(None, start="coordinate"),
        vn.full_matrix_root_norm(None),
    ],
    ids=["known", "isotropic", "coordinate", "root"],
)
def test_dual_points_do_not_depend_on_what_is_remembered(x64, norm):
    """That of the learner's sum, of which the norm has kept track, is like that of any other."""
    gradients = stream("random", 40, 6) * np.where(np.arange(40) == 20, 1e3, 1)[:, None]
    state = observe_all(norm, jnp.asarray(gradients))
    total = state.received_sum
    np.testing.assert_allclose(
        norm.to_primal(state, total), norm.to_primal(state, 2 * total) / 2, rtol=1e-9
    )


@pytest.mark.parametrize("dimension", [128, 512])
def test_memory_is_two_matrices_and_a_little(dimension):
    state = vn.full_matrix().init(jnp.zeros(dimension))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert size <= 2.2 * dimension**2 * 4 + 32 * dimension


@pytest.mark.parametrize("dtype", ACCURACY)
def test_the_quadrature_is_as_accurate_as_stated(dtype):
    shifts, weights = _inverse_root_quadrature(*ACCURACY[dtype])
    values = np.geomspace(1, ACCURACY[dtype].largest_eigenvalue, 10_000)
    relative = np.sum(weights / (values[:, None] + shifts), axis=1) * np.sqrt(values) - 1
    assert np.max(np.abs(relative)) < {4: 1.05e-6, 8: 1.2e-11}[dtype.itemsize]
    assert np.all(shifts > 0)
    assert np.all(weights > 0)
    assert np.sum(weights / (1 + shifts)) <= 1  # so no gradient is longer than it should be


def test_the_float32_root_is_better_than_a_float32_eigendecomposition():
    rounds, dimension = 2000, 48
    gradients = stream("power_law", rounds, dimension).astype(np.float32)
    exact = gradients.astype(np.float64)
    values, vectors = np.linalg.eigh(np.eye(dimension) + exact.T @ exact)
    probe = np.random.default_rng(0).normal(size=dimension)
    expected = vectors @ (vectors.T @ probe / np.sqrt(values))
    errors = {}
    for name, norm in {
        "quadrature": vn.full_matrix_root_norm(),
        "eigh": vn.full_matrix_root_norm(exact_every=1),
    }.items():
        state = observe_all(norm, jnp.asarray(gradients))
        primal = norm.to_primal(state, jnp.asarray(probe, jnp.float32))
        errors[name] = np.linalg.norm(primal - expected) / np.linalg.norm(expected)
    assert errors["quadrature"] < min(1e-5, errors["eigh"])


@pytest.mark.parametrize("every", [1, 7])
def test_the_exact_root_is_refreshed_on_schedule(x64, every):
    norm = vn.full_matrix_root_norm(exact_every=every)
    gradients = stream("random", 20, 5)
    theirs = reference.FullMatrixRoot(5)
    state = norm.init(jnp.zeros(5))
    for t, gradient in enumerate(gradients, start=1):
        state = norm.observe_gradient(state, jnp.asarray(gradient))
        if t % every == 0:
            covariance = gradients[:t].T @ gradients[:t]
            theirs = reference.FullMatrixRoot(5, 1.0, covariance)
        np.testing.assert_allclose(
            norm.to_primal(state, jnp.ones(5)), theirs.primal_vector(np.ones(5)), rtol=1e-10
        )
    with pytest.raises(ValueError, match="at least 1"):
        vn.full_matrix_root_norm(exact_every=0)


@pytest.mark.parametrize("norm", [vn.full_matrix_norm(), vn.full_matrix_root_norm()])
@pytest.mark.parametrize(
    "between",
    [
        optax.identity(),
        optax.scale(0.5),
        optax.trace(0.5),
        optax.conditionally_transform(
            optax.identity(), lambda step, **extra: step % 2 == 0, forward_extra_args=True
        ),
    ],
    ids=["identity", "scale", "trace", "conditionally"],
)
def test_the_leader_is_that_of_the_gradients_the_learner_received(x64, norm, between):
    """Whatever stands between the norm and the learner."""
    optimizer = vn.with_varying_norm(norm, optax.chain(between, vn.ftrl_step()))
    gradients = jnp.asarray(stream("random", 30, 6))
    game = play(optimizer, gradients, jnp.zeros(6))
    check_leader(norm, game, game.states.learner_state[1])


def test_a_learner_that_misses_rounds_follows_its_own_sum(x64):
    norm = vn.full_matrix_norm()
    learner = optax.conditionally_transform(
        vn.ftrl_step(), lambda step, **extra: step % 3 != 0, forward_extra_args=True
    )
    gradients = jnp.asarray(stream("random", 30, 6))
    start = jnp.zeros(6)
    game = play(vn.with_varying_norm(norm, learner), gradients, start)
    ftrl = game.final_state.learner_state.inner_state
    expected = sum(g for t, g in enumerate(np.asarray(gradients)) if t % 3)
    np.testing.assert_allclose(ftrl.gradient_sum, expected, atol=1e-12)


def check_leader(norm, game, ftrl_states):
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[-1]), game.states.norm_state)
    theta = jnp.asarray(ftrl_states.gradient_sum[-1])
    primal = norm.to_primal(state, theta)
    length = float(jnp.sqrt(theta @ primal))
    step = min(np.sqrt(0.5) / np.sqrt(1 + ftrl_states.squared_dual_norm_sum[-1]), 1 / length)
    np.testing.assert_allclose(game.points[-1], -step * primal, atol=1e-10)


@pytest.mark.parametrize("dimension", [3, 9, 32, 129])
def test_the_matrix_with_waiting_terms_is_what_products_are_with(dimension):
    """However many wait, alone and in a batch."""
    rng = np.random.default_rng(dimension)
    inverse = growing_inverse.scaled_identity(jnp.asarray(0.5), jnp.zeros(dimension))
    states = []
    for _ in range(growing_inverse.pending_capacity(dimension) + 3):
        vector = jnp.asarray(rng.normal(size=dimension), jnp.float32)
        primal = growing_inverse.times(inverse, vector)
        inverse = growing_inverse.grow(inverse, vector, primal)
        states.append(inverse)
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    whole = functools.partial(growing_inverse.block, indices=None)
    together = jax.jit(jax.vmap(whole))(batch)
    for state, in_batch in zip(states, together, strict=True):
        columns = jax.vmap(functools.partial(growing_inverse.times, state))(jnp.eye(dimension))
        np.testing.assert_allclose(whole(state), columns, rtol=0, atol=1e-6)
        np.testing.assert_allclose(in_batch, columns, rtol=0, atol=1e-6)


def test_batched_counters_flush_as_single_ones_do():
    """vmap over states, whose counters are then batched too."""
    optimizer = vn.full_matrix()
    gradients = np.stack([stream("random", 40, 12, seed) for seed in range(3)]).astype(np.float32)
    params = jnp.zeros((3, 12))
    states = jax.vmap(optimizer.init)(params)
    step = jax.jit(jax.vmap(optimizer.update))
    for t in range(40):
        updates, states = step(jnp.asarray(gradients[:, t]), states, params)
        params = params + updates
    for seed in range(3):
        alone = play(optimizer, jnp.asarray(gradients[seed]), jnp.zeros(12)).points[-1]
        np.testing.assert_allclose(params[seed], alone, atol=1e-5)
