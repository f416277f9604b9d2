"""Linear learners against the reference, and their predictions in other units."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optax_varynorm as vn
from optax_varynorm.norm_library import growing_inverse, max_feature
from tests import reference_features as reference

EPSILON = 10.0
OPTIMIZERS = {
    "algorithm 3": vn.diagonal_scale_invariant(EPSILON),
    "Kempka": vn.diagonal_scale_invariant(EPSILON, with_gradients=True),
    "algorithm 4, max": vn.full_matrix_scale_invariant(EPSILON, cover="max", capacity=64),
    "algorithm 4, span": vn.full_matrix_scale_invariant(EPSILON),
    "algorithm 4, coordinate": vn.anchored(
        vn.with_varying_norm(
            vn.feature_cover_norm("coordinate"),
            vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(EPSILON)),
        )
    ),
    "combined": vn.scale_invariant(EPSILON, scale_learner=vn.coin_betting),
    "default": vn.scale_invariant(),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
fast_optimizers = pytest.mark.parametrize("name", [n for n in OPTIMIZERS if "max" not in n])


@functools.partial(jax.jit, static_argnums=0)
def play_game(optimizer, features, labels):
    """Logistic loss; returns each prediction, and the state and point at the end."""

    def play_round(carry, example):
        params, state = carry
        row, next_row, label = example
        prediction = row @ params
        gradient = -label * jax.nn.sigmoid(-label * prediction) * row
        step, state = optimizer.update(
            gradient, state, params, features=row, next_features=next_row
        )
        return (params + step, state), (prediction, gradient)

    params = jnp.zeros(features.shape[1], features.dtype)
    next_rows = jnp.concatenate([features[1:], jnp.zeros_like(features[:1])])
    carry = (params, optimizer.init(params))
    carry, (predictions, gradients) = jax.lax.scan(play_round, carry, (features, next_rows, labels))
    return predictions, gradients, *carry


def play(name, features, labels):
    return play_game(OPTIMIZERS[name], jnp.asarray(features), jnp.asarray(labels))


def stream(seed, rounds, dimension):
    rng = np.random.default_rng(seed)
    features = reference.some_features(rng, rounds, dimension)
    signal = features @ rng.normal(size=dimension) + rng.normal(size=rounds)
    return features, np.where(signal > 0, 1.0, -1.0)


def total(state, field):
    """The sum of a counter over all learners and coordinates."""
    return sum(
        int(np.sum(leaf))
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if field in jax.tree_util.keystr(path)
    )


@pytest.mark.parametrize("name", reference.GAMES)
def test_predictions_are_those_of_the_reference(name, x64):
    features, labels = stream(seed=0, rounds=50, dimension=4)
    expected = reference.GAMES[name](
        features, reference.logistic_slope(labels), EPSILON
    ).predictions
    predictions, _, _, state = play(name, features, labels)
    assert np.max(np.abs(expected)) > 0.1
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-6 if "max" in name else 1e-8)
    assert total(state, "clipped_rounds") == total(state, "skipped_rounds") == 0


@every_optimizer
def test_units_do_not_matter(name, x64):
    features, labels = stream(seed=1, rounds=50 if "max" in name else 400, dimension=6)
    units = 10.0 ** np.random.default_rng(2).uniform(-6, 6, 6)
    predictions = play(name, features, labels)[0]
    np.testing.assert_allclose(
        play(name, features * units, labels)[0], predictions, rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("name", ["algorithm 4, span", "algorithm 4, max"])
@pytest.mark.parametrize("condition", [10.0, 1e4])
def test_invertible_maps_do_not_matter(name, condition, x64):
    """Also in the first rounds, whose features do not yet span the space."""
    features, labels = stream(seed=3, rounds=50 if "max" in name else 400, dimension=6)
    turn = reference.some_map(np.random.default_rng(4), 6, condition)
    predictions = play(name, features, labels)[0]
    np.testing.assert_allclose(
        play(name, features @ turn.T, labels)[0], predictions, rtol=0, atol=1e-6
    )
    # A learner by coordinate is not as invariant: the test can fail.
    other = play("algorithm 3", features, labels)[0]
    mapped = play("algorithm 3", features @ turn.T, labels)[0]
    assert np.max(np.abs(mapped - other)) > 1e-2


@fast_optimizers
def test_units_and_maps_in_float32(name):
    features, labels = stream(seed=5, rounds=400, dimension=6)
    rng = np.random.default_rng(6)
    turn = np.diag(10.0 ** rng.uniform(-1, 1, 6))
    if "span" in name:
        turn = reference.some_map(rng, 6, condition=100.0)
    predictions = np.asarray(play(name, features.astype(np.float32), labels)[0])
    turned = play(name, (features @ turn.T).astype(np.float32), labels)[0]
    np.testing.assert_allclose(turned, predictions, rtol=0, atol=1e-2)


@fast_optimizers
@given(
    seed=st.integers(0, 10**6),
    decades=st.sampled_from([0, 3, 10, 30]),
    zeros=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_every_stream_of_features_is_survived(name, seed, decades, zeros):
    """Magnitudes over sixty decades, sparse rows, NaN and infinite ones: finite in float32.

    A basis of the span bears sixteen decades within a column.
    """
    rng = np.random.default_rng(seed)
    decades = min(decades, 8) if "span" in name else decades
    features = rng.normal(size=(60, 5)) * 10 ** rng.uniform(-decades, decades, (60, 5))
    features[rng.uniform(size=features.shape) < zeros] = 0
    features = features.astype(np.float32)
    unusable = rng.uniform(size=60) < 0.05
    features[unusable, 0] = rng.choice([np.nan, np.inf], np.sum(unusable))
    labels = rng.choice([-1.0, 1.0], 60).astype(np.float32)
    predictions, _, params, state = play(name, features, labels)
    assert np.all(np.isfinite(np.asarray(predictions)[~unusable]))
    assert np.all(np.isfinite(params))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))
    if np.any(unusable):
        assert total(state, "skipped_rounds") > 0


@fast_optimizers
@given(seed=st.integers(0, 10**6), growth=st.sampled_from([0.0, 1.0, 3.0]))
def test_regret_is_below_the_bound(name, seed, growth):
    """With features that grow by decades, so that the norms have to follow."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        features, labels = stream(seed, rounds=60, dimension=5)
        features = features * np.exp(growth * rng.uniform(-1, 1) * np.arange(60) / 10)[:, None]
        optimizer = TRACKED[name]
        _, _, _, state = play_game(optimizer, jnp.asarray(features), jnp.asarray(labels))
        assert total(state, "clipped_rounds") == 0
        comparators = np.linalg.lstsq(features, labels * rng.uniform(0.1, 10), rcond=None)[0]
        for comparator in (np.zeros(5), comparators, rng.normal(size=5)):
            regret = vn.regret(state, jnp.asarray(comparator))
            assert regret <= bound_of(optimizer, state, jnp.asarray(comparator)) + 1e-9


TRACKED = {name: vn.track_regret(optimizer) for name, optimizer in OPTIMIZERS.items()}
bound_of = jax.jit(vn.regret_bound, static_argnums=0)


@pytest.mark.parametrize("start", ["coordinate", "span"])
@pytest.mark.parametrize("outgrows", [False, True])
def test_the_cover_knows_its_matrix_and_its_leader(start, outgrows, x64):
    """Also after a feature outgrew its weight and started afresh."""
    rng = np.random.default_rng(9)
    norm = vn.feature_cover_norm(start)
    announce = jax.jit(norm.announce)
    measure, grow = jax.jit(norm.measure), jax.jit(norm.grow)
    to_primal, squared_norm = jax.jit(norm.to_primal), jax.jit(functools.partial(squared, norm))
    state = norm.init(jnp.zeros(4))
    received = np.zeros(4)
    points = rng.normal(size=(20, 4))
    lengths = np.zeros(20)
    for t in range(60):
        feature = rng.normal(size=4)
        if outgrows and t == 30:
            feature[2] *= 1e6
        share = rng.uniform()
        state = announce(state, jnp.asarray(feature))
        assert to_primal(state, jnp.asarray(feature)) @ feature <= 1 + 1e-9
        gradient = jnp.asarray(rng.uniform(-1, 1) * feature)
        reading = measure(state, gradient)._replace(share=jnp.asarray(share))
        state = grow(state, reading)
        received += share * np.asarray(gradient)
        grown = np.asarray(squared_norm(state, jnp.asarray(points)))
        assert np.all(grown >= lengths * (1 - 1e-9))
        lengths = grown
    np.testing.assert_allclose(state.received_sum, received, rtol=1e-12)
    leader = to_primal(state, state.received_sum)
    np.testing.assert_allclose(leader, to_primal(state, 2 * state.received_sum) / 2, rtol=1e-6)
    matrix = np.linalg.inv(growing_inverse.dense(state.inverse))
    np.testing.assert_allclose(np.diag(matrix), state.weights, rtol=1e-4 if outgrows else 1e-9)


def squared(norm, state, points):
    return jax.vmap(lambda x: norm.to_dual(state, x) @ x)(points)


@pytest.mark.parametrize(
    "learner",
    [
        OPTIMIZERS["algorithm 4, max"],
        vn.with_varying_norm(
            vn.max_feature_norm(capacity=4), vn.scale_by_coin_betting(vn.ftrl_step())
        ),
    ],
    ids=["ready-made", "composed"],
)
def test_the_paper_s_own_norm_has_no_bound(learner):
    optimizer = vn.track_regret(learner)
    with pytest.raises(ValueError, match="No regret bound is known"):
        vn.regret_bound(optimizer, optimizer.init(jnp.zeros(2)), jnp.ones(2))


def test_the_paper_s_own_norm_is_not_strongly_convex(x64):
    """G = e1 e1', features e1 and e2: between (1, 0) and (1, 1/2) its half square is flat."""
    norm = vn.max_feature_norm(capacity=2)
    state = norm.init(jnp.zeros(2))
    for feature in jnp.eye(2):
        state = norm.announce(state, feature)
    state = norm.observe_gradient(state, jnp.array([1.0, 0.0]))
    ends = jnp.array([[1.0, 0.0], [1.0, 0.5]])
    half_squares = [
        vn.primal_norm(norm, state, x) ** 2 / 2 for x in (*ends, jnp.mean(ends, axis=0))
    ]
    assert half_squares[0] == half_squares[1] == half_squares[2]
    assert vn.primal_norm(norm, state, ends[0] - ends[1]) > 0


def test_the_paper_s_own_norm_is_known_to_its_duality_gap(x64):
    rng = np.random.default_rng(8)
    norm = vn.max_feature_norm(capacity=20)
    state = norm.init(jnp.zeros(4))
    announce = jax.jit(norm.announce)
    for feature in rng.normal(size=(20, 4)):
        state = announce(state, jnp.asarray(feature))
    assert max_feature.duality_gap(state, jnp.asarray(feature)) <= 1e-13
    assert max_feature.duality_gap(state, jnp.asarray(feature), tolerance=1e-2) > 1e-13


def test_more_features_than_fit_are_reported():
    optimizer = vn.full_matrix_scale_invariant(cover="max", capacity=3)
    features, labels = stream(seed=7, rounds=20, dimension=2)
    predictions, _, _, state = play_game(
        optimizer, jnp.asarray(features, jnp.float32), jnp.asarray(labels, jnp.float32)
    )
    assert np.isnan(predictions[-1])
    assert optax.tree.get(state, "overflowed") > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cover": "sphere"}, "must be 'ellipsoid' or 'max'"),
        ({"cover": "max"}, "capacity=1000"),
        ({"capacity": 10}, "goes with `cover='max'`"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        vn.full_matrix_scale_invariant(**arguments)


@fast_optimizers
def test_features_are_asked_for(name):
    optimizer = OPTIMIZERS[name]
    params = jnp.zeros(3)
    state = optimizer.init(params)
    with pytest.raises(ValueError, match=r"features=\.\.\., next_features=..."):
        optimizer.update(params, state, params)
    with pytest.raises(ValueError, match=r"one weight a feature|vmap"):
        optimizer.update(params, state, params, features=params, next_features=jnp.zeros(2))


def test_many_parameters_go_without_a_matrix():
    state = vn.scale_invariant().init(jnp.zeros(1000))
    assert max(leaf.size for leaf in jax.tree.leaves(state)) == 1000
