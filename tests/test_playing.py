"""The compiled game: one run, and many at once."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from tests.playing import stream

ROUNDS, DIMENSION, SHIFT = 37, 3, 0.5
COMPARATOR = np.array([0.5, -0.3, 0.1])


def absolute_loss(params, f):
    return jnp.abs(f @ params - jnp.asarray(SHIFT, f.dtype))


def rows(rounds=ROUNDS, seed=0):
    return stream("random", rounds, DIMENSION, seed=seed)


def tracked(**settings):
    return vn.track_regret(vn.fixed_norm(**settings))


def assert_same_game(many, index, one):
    """A run of a sweep, and the same run alone: params, state and history."""

    def compare(together, alone):
        np.testing.assert_allclose(np.asarray(together)[index], alone, rtol=1e-9, atol=1e-11)

    rounds = {"bound_rounds": None}
    compared = (many.params, many.history._replace(**rounds))
    jax.tree.map(compare, compared, (one.params, one.history._replace(**rounds)))
    for together, alone in zip(
        jax.tree.leaves(many.state), jax.tree.leaves(one.state), strict=True
    ):
        compare(together, alone)


def test_play_is_the_loop_a_user_would_write():
    features = jnp.asarray(stream("random", 100, 4), jnp.float32)
    lines = []
    optimizer = vn.diagonal()
    start = jnp.zeros(4)
    game = vn.play(
        optimizer, absolute_loss, features, start, rounds_a_chunk=30, report=lines.append
    )

    def play_round(carry, f):
        params, state = carry
        value, gradient = jax.value_and_grad(absolute_loss)(params, f)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    (params, _), losses = jax.lax.scan(play_round, (start, optimizer.init(start)), features)
    np.testing.assert_allclose(game.losses, losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(game.params, params, rtol=1e-5, atol=1e-6)
    assert [line.rounds_played for line in lines] == [30, 60, 90, 100]
    assert str(lines[-1]).startswith(f"round 100 of 100, loss {np.mean(losses[90:]):.4g}, ")
    assert game.rounds_per_second > 0
    assert game.seconds_to_first_chunk > 0
    assert not start.is_deleted()


def test_the_history_is_what_a_python_loop_writes_down(x64):
    """Regret by its definition, the rest from the states by the names of their fields."""
    optimizer = vn.track_regret(vn.fixed_norm(epsilon=0.7, lipschitz=0.9))
    params = jnp.zeros(DIMENSION)
    state = optimizer.init(params)
    losses, regret, wealth, clipped, bound = [], [0.0], [], [], []
    for number, f in enumerate(rows(), start=1):
        error = float(f @ params) - SHIFT
        gradient = np.sign(error) * f
        losses.append(abs(error))
        regret.append(regret[-1] + float(gradient @ (params - COMPARATOR)))
        updates, state = optimizer.update(jnp.asarray(gradient), state, params)
        params = optax.apply_updates(params, updates)
        layer = state.tracked_learner_state.grounded_learner_state
        wealth.append(np.exp(layer.learner_state.scale_state.log_wealth))
        clipped.append(int(layer.clipped_rounds))
        if number in (15, 30, 37):
            bound.append(vn.regret_bound(optimizer, state, jnp.asarray(COMPARATOR)))

    game = vn.play(
        optimizer,
        absolute_loss,
        rows(),
        jnp.zeros(DIMENSION),
        rounds_a_chunk=15,
        comparator=jnp.asarray(COMPARATOR),
    )
    history = game.history
    np.testing.assert_allclose(history.losses, losses, rtol=1e-9)
    np.testing.assert_allclose(history.regret, regret[1:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(history.wealth, wealth, rtol=1e-9)
    np.testing.assert_array_equal(history.clipped, clipped)
    assert clipped[-1] > 5, "gradients of length one are longer than promised"
    np.testing.assert_allclose(history.bound, bound, rtol=1e-9)
    np.testing.assert_array_equal(history.bound_rounds, [15, 30, 37])
    np.testing.assert_allclose(vn.regret(game.state, jnp.asarray(COMPARATOR)), regret[-1])


def test_a_combinations_wealth_is_the_sum_of_all_bettors():
    game = vn.play(
        vn.combine(vn.fixed_norm(epsilon=2.0), vn.diagonal_scale_invariant(epsilon=0.3)),
        absolute_loss,
        np.zeros((5, DIMENSION), np.float32),
        jnp.zeros(DIMENSION),
        features=lambda f: f,
    )
    np.testing.assert_allclose(game.history.wealth, 2 + DIMENSION * 0.3, rtol=1e-5)


def test_what_the_state_does_not_offer_is_none():
    examples = jnp.asarray(rows(), jnp.float32)
    start, comparator = jnp.zeros(DIMENSION), jnp.ones(DIMENSION)
    plain = vn.play(optax.adagrad(0.1), absolute_loss, examples, start).history
    assert (plain.regret, plain.wealth, plain.clipped, plain.bound) == (None,) * 4
    adagrad = vn.track_regret(optax.adagrad(0.1))
    history = vn.play(adagrad, absolute_loss, examples, start, comparator=comparator).history
    assert history.bound is None
    assert history.regret.shape == (ROUNDS,)
    with pytest.raises(ValueError, match="Wrap the optimizer in `track_regret`"):
        vn.play(optax.adagrad(0.1), absolute_loss, examples, start, comparator=comparator)


def test_learners_of_linear_models_are_told_the_features(x64):
    examples = rows()
    learner = vn.predict_then_update(vn.diagonal_scale_invariant())
    predict = jax.jit(learner.predict)
    state, losses = learner.init(jnp.zeros(DIMENSION)), []
    for f in examples:
        params, state = predict(state, jnp.asarray(f))
        value, gradient = jax.value_and_grad(absolute_loss)(params, jnp.asarray(f))
        state = learner.update(state, gradient)
        losses.append(value)
    game = vn.play(
        vn.diagonal_scale_invariant(),
        absolute_loss,
        examples,
        jnp.zeros(DIMENSION),
        rounds_a_chunk=10,
        features=lambda f: f,
    )
    np.testing.assert_allclose(game.losses, losses, rtol=1e-9)


def test_every_seed_plays_its_own_shuffle_of_the_stream(x64):
    examples, start = rows(), jnp.zeros(DIMENSION)
    optimizer = vn.diagonal()
    many = vn.sweep(lambda: optimizer, absolute_loss, examples, start, 20, seeds=[3, 5, 8])
    assert many.losses.shape == (3, ROUNDS)
    for index, seed in enumerate([3, 5, 8]):
        shuffled = examples[jax.random.permutation(jax.random.key(seed), ROUNDS)]
        one = vn.play(optimizer, absolute_loss, shuffled, start, 20)
        assert_same_game(many, index, one)
    assert not np.allclose(many.losses[0], many.losses[1])
    assert not start.is_deleted()


def test_settings_by_seeds_are_all_the_single_games(x64):
    """Streams drawn by key, two hyperparameters of which the norm and the bound know one each."""
    start, comparator = jnp.zeros(DIMENSION), jnp.asarray(COMPARATOR)

    def draw(key):
        return jax.random.normal(key, (ROUNDS, DIMENSION))

    settings = {"epsilon": np.array([0.1, 2.0]), "lipschitz": np.array([1.0, 3.0])}
    many = vn.sweep(
        tracked,
        absolute_loss,
        draw,
        start,
        20,
        seeds=2,
        hyperparameters=settings,
        comparator=comparator,
    )
    assert many.losses.shape == (2, 2, ROUNDS)
    assert many.history.bound.shape == (2, 2, 2)
    for setting in range(2):
        optimizer = tracked(**{name: values[setting] for name, values in settings.items()})
        for seed in range(2):
            examples = draw(jax.random.key(seed))
            one = vn.play(optimizer, absolute_loss, examples, start, 20, comparator=comparator)
            assert_same_game(many, (setting, seed), one)
            state = jax.tree.map(lambda leaf, i=(setting, seed): leaf[i], many.state)
            bound = vn.regret_bound(optimizer, state, comparator)
            np.testing.assert_allclose(bound, many.history.bound[setting, seed, -1])
    assert np.all(many.history.regret[..., -1] <= many.history.bound[..., -1])


def test_without_seeds_the_stream_stays_in_order():
    examples, start = jnp.asarray(rows(), jnp.float32), jnp.zeros(DIMENSION)
    rates = {"learning_rate": jnp.array([0.01, 0.3])}
    many = vn.sweep(optax.adagrad, absolute_loss, examples, start, hyperparameters=rates)
    for index, rate in enumerate((0.01, 0.3)):
        one = vn.play(optax.adagrad(rate), absolute_loss, examples, start)
        np.testing.assert_allclose(many.losses[index], one.losses, rtol=1e-4, atol=1e-6)


def test_other_numbers_lengths_and_chunks_compile_nothing():
    traces = []

    def loss(params, f):
        traces.append(None)
        return absolute_loss(params, f)

    start = jnp.zeros(DIMENSION)

    def sweep(rounds, settings):
        return vn.sweep(
            vn.fixed_norm,
            loss,
            np.float32(rows(rounds)),
            start,
            16,
            seeds=2,
            hyperparameters={"epsilon": jnp.array(settings)},
        )

    optimizer = vn.diagonal()
    vn.play(optimizer, loss, np.float32(rows(40)), start, 16)
    sweep(40, [0.1, 1.0])
    compiled = len(traces)
    vn.play(optimizer, loss, np.float32(rows(21)), start, 16)
    sweep(50, [0.3, 2.0])
    assert len(traces) == compiled


def test_streams_that_cannot_be_played_are_refused():
    with pytest.raises(ValueError, match="same number of rows"):
        vn.play(vn.fixed_norm(), None, (jnp.zeros(3), jnp.zeros(4)), jnp.zeros(1))
    with pytest.raises(ValueError, match="at least one"):
        vn.play(vn.fixed_norm(), None, jnp.zeros((0, 2)), jnp.zeros(2))
    with pytest.raises(ValueError, match="needs `seeds`"):
        vn.sweep(vn.fixed_norm, None, lambda key: key, jnp.zeros(1))
    with pytest.raises(ValueError, match="at least one seed"):
        vn.sweep(vn.fixed_norm, None, jnp.zeros((3, 1)), jnp.zeros(1), seeds=[])


@pytest.mark.parametrize(
    "settings", [{}, {"epsilon": 1.0}, {"epsilon": jnp.ones(2), "p": jnp.ones(3)}]
)
def test_hyperparameters_are_arrays_of_one_length(settings):
    with pytest.raises(ValueError, match="arrays of one length"):
        vn.sweep(vn.fixed_norm, None, jnp.zeros((3, 1)), jnp.zeros(1), hyperparameters=settings)


def test_every_setting_is_checked():
    settings = {"epsilon": jnp.array([1.0, -1.0])}
    with pytest.raises(ValueError, match="`epsilon` is the money"):
        vn.sweep(vn.fixed_norm, None, jnp.zeros((3, 1)), jnp.zeros(1), hyperparameters=settings)


def test_a_start_outside_the_domain_is_seen():
    optimizer = vn.fixed_norm(domain=vn.l2_ball(1.0))
    for play in (vn.play, lambda optimizer, *rest: vn.sweep(lambda: optimizer, *rest, seeds=2)):
        with pytest.raises(ValueError, match="domain"):
            play(optimizer, absolute_loss, jnp.zeros((3, 1)), jnp.full(1, 2.0))
