"""Rounds that look only at what is not zero play what dense ones play."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from optax_varynorm.certificates.compensated import CompensatedSum
from optax_varynorm.ftrl import FTRLState
from optax_varynorm.kernels import one_kernel
from optax_varynorm.sparse_rounds import from_dense

SIZE, LENGTH = 12, 5
OPTIMIZERS = {
    "coin_betting": vn.diagonal_scale_invariant(),
    "freegrad_betting": vn.diagonal_scale_invariant(scale_learner=vn.freegrad_betting),
    "kt_betting": vn.diagonal_scale_invariant(scale_learner=vn.kt_betting),
    "with_gradients": vn.diagonal_scale_invariant(0.3, with_gradients=True),
    "freegrad_with_gradients": vn.diagonal_scale_invariant(0.3, True, vn.freegrad_betting),
    "kt_with_gradients": vn.diagonal_scale_invariant(0.3, True, vn.kt_betting),
    "constrained_bets": vn.diagonal_scale_invariant(
        scale_learner=lambda epsilon: vn.constrained_bets(vn.coin_betting(epsilon))
    ),
}
FAST = ("coin_betting", "with_gradients")
every_optimizer = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in OPTIMIZERS],
)


def stream(rounds=120, seed=0):
    """Up to four features of twelve, of sizes from 1e-3 to 1e3 that grow; one is first seen late.

    Some of the values are zero, and some slopes are larger than promised.
    """
    rng = np.random.default_rng(seed)
    indices = np.full((rounds, LENGTH), SIZE, np.int32)
    for t, row in enumerate(indices):
        count = rng.integers(0, LENGTH)
        row[:count] = rng.choice(SIZE - (t < rounds // 2), count, replace=False)
    sizes = 10.0 ** rng.integers(-3, 4, size=SIZE + 1)
    values = rng.normal(size=indices.shape) * sizes[indices] * np.linspace(1, 3, rounds)[:, None]
    values[indices == SIZE] = 0
    values[rng.random(indices.shape) < 0.1] = 0
    slopes = rng.normal(size=rounds)
    return jnp.asarray(indices), jnp.asarray(values, jnp.float32), jnp.asarray(slopes, jnp.float32)


def dense_row(indices, values):
    return jnp.zeros(SIZE + 1, values.dtype).at[indices].add(values)[:SIZE]


def slope_at(score, slope):
    """It depends on what was played, so that errors would not stay where they are."""
    return slope * (1 + 0.5 * jnp.tanh(score))


def dense_round(learner, state, example):
    indices, values, slope = example
    row = dense_row(indices, values)
    point, state = learner.predict(state, row)
    score = point @ row
    return learner.update(state, slope_at(score, slope) * row), score


def sparse_round(learner, state, example):
    indices, values, slope = example
    weights, visit = learner.predict(state, indices, values)
    score = jnp.sum(weights * values)
    return learner.update(state, visit, slope_at(score, slope) * values), score


@functools.partial(jax.jit, static_argnums=0)
def play_dense(name, state, examples):
    learner = vn.predict_then_update(OPTIMIZERS[name])
    return jax.lax.scan(functools.partial(dense_round, learner), state, examples)


@functools.partial(jax.jit, static_argnums=0)
def play_sparse(name, state, examples):
    learner = vn.sparse_predict_then_update(OPTIMIZERS[name])
    return jax.lax.scan(functools.partial(sparse_round, learner), state, examples)


def start(name):
    return (
        vn.predict_then_update(OPTIMIZERS[name]).init(jnp.zeros(SIZE)),
        vn.sparse_predict_then_update(OPTIMIZERS[name]).init(SIZE),
    )


@functools.partial(jax.jit, static_argnums=0)
def after_the_stream(name, dense_state):
    """Points and states when nothing waits any more."""
    return vn.predict_then_update(OPTIMIZERS[name]).predict(dense_state, jnp.zeros(SIZE))


def known_digits(state):
    """With compensated sums as one number each, and without the estimates of rounding.

    How a sum is split up is rounding, and a sparse round estimates it before the next features.
    """

    def of_node(node):
        if isinstance(node, CompensatedSum):
            return node.value()
        return (node.gradient_sum, node.squared_dual_norm_sum) if is_leader(node) else node

    def is_leader(node):
        return isinstance(node, FTRLState)

    def is_leaf(node):
        return isinstance(node, CompensatedSum) or is_leader(node)

    return jax.tree.map(of_node, state, is_leaf=is_leaf)


def assert_close(actual, expected, rtol=2e-5):
    """Integers and booleans exactly; numbers relative to the largest."""
    actual, expected = map(known_digits, (actual, expected))

    def compare(a, b):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind in "bi":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())

    jax.tree.map(compare, actual, expected)


@every_optimizer
def test_sparse_rounds_play_what_dense_ones_play(name):
    examples = stream()
    dense_state, sparse_state = start(name)
    dense_state, expected = play_dense(name, dense_state, examples)
    sparse_state, scores = play_sparse(name, sparse_state, examples)
    assert np.abs(expected).max() > 0.01
    assert_close(scores, expected)
    unpacked = vn.sparse_predict_then_update(OPTIMIZERS[name]).unpack(sparse_state)
    points, state = after_the_stream(name, unpacked)
    expected_points, expected_state = after_the_stream(name, dense_state)
    assert_close(points, expected_points)
    assert_close(unpacked.played_point, expected_points)
    assert_close(from_dense(state), from_dense(expected_state))
    clipped = optax.tree.get(state, "clipped_rounds")
    assert clipped.sum() > 0, "some slopes were larger than one"


@pytest.mark.parametrize("name", FAST)
def test_wild_numbers_count_as_in_dense_rounds(name):
    """Values and slopes that are huge, tiny, infinite or no numbers."""
    wild = jnp.array([jnp.nan, jnp.inf, -jnp.inf, 1e38, 1e30, -1e25, 1e-36, 1e-20])
    indices, values, slopes = stream()
    values = values.at[5:117:7, 0].set(jnp.tile(wild, 2))
    values = jnp.where(indices == SIZE, 0, values)
    slopes = slopes.at[9:121:7].set(jnp.tile(wild, 2))
    dense, sparse = (
        wrap(OPTIMIZERS[name]) for wrap in (vn.predict_then_update, vn.sparse_predict_then_update)
    )

    # Slopes are those of the stream: after a score that is no number, others would be none either.
    def play_dense_row(state, example):
        indices, values, slope = example
        state = dense.predict(state, dense_row(indices, values))[1]
        gradient = jnp.where(indices == SIZE, 0, slope * values)
        return dense.update(state, dense_row(indices, gradient)), None

    def play_sparse_row(state, example):
        indices, values, slope = example
        visit = sparse.predict(state, indices, values)[1]
        gradient = jnp.where(indices == SIZE, 0, slope * values)
        return sparse.update(state, visit, gradient), None

    def play(play_row, state):
        return jax.jit(lambda *x: jax.lax.scan(play_row, *x)[0])(state, (indices, values, slopes))

    start_dense, start_sparse = start(name)
    expected_points, expected = after_the_stream(name, play(play_dense_row, start_dense))
    sparse_state = play(play_sparse_row, start_sparse)
    np.testing.assert_array_equal(sparse_state.table[-1], start_sparse.table[-1])
    points, actual = after_the_stream(name, sparse.unpack(sparse_state))
    assert jnp.all(jnp.isfinite(points))
    # A dense point is a sum of steps, each of them rounded at the size that it had.
    np.testing.assert_allclose(points, expected_points, rtol=1e-4, atol=1e-8)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-4),
        known_digits(from_dense(actual)),
        known_digits(from_dense(expected)),
    )
    assert optax.tree.get(actual, "skipped_rounds").sum() > 0


@pytest.mark.parametrize(
    ("bettor", "with_gradients"),
    [
        (vn.coin_betting, False),
        (vn.freegrad_betting, True),
        pytest.param(vn.coin_betting, True, marks=pytest.mark.slow),
        pytest.param(vn.freegrad_betting, False, marks=pytest.mark.slow),
    ],
)
def test_a_coordinate_may_wait(bettor, with_gradients):
    """``update(g, f, next=f')`` is ``update(g, f, next=0)``, nothing, ``update(0, 0, next=f')``."""
    optimizer = vn.diagonal_scale_invariant(1.0, with_gradients, bettor)
    update = jax.jit(optimizer.update)
    params, numbers = jnp.zeros(2), np.random.default_rng(0).normal(size=(40, 2, 2))
    at_once = waiting = optimizer.init(params)
    points = [params, params]
    features, zeros = jnp.zeros(2), jnp.zeros(2)
    for slope, size in jnp.asarray(numbers, jnp.float32):
        gradient = jnp.tanh(slope) * features
        next_features = 3 * size
        step, at_once = update(
            gradient, at_once, points[0], features=features, next_features=next_features
        )
        points[0] = points[0] + step
        for g, now, later in (
            (gradient, features, zeros),
            (zeros, zeros, zeros),
            (zeros, zeros, next_features),
        ):
            step, waiting = update(g, waiting, points[1], features=now, next_features=later)
            points[1] = points[1] + step
        features = next_features
    assert np.abs(points[0]).min() > 0
    # Their last steps started elsewhere.
    waiting = waiting._replace(left_from=at_once.left_from)
    assert_close((points[1], waiting), (points[0], at_once), rtol=1e-5)


def test_dense_and_sparse_rounds_take_turns():
    name = "coin_betting"
    examples = stream()
    learner = vn.sparse_predict_then_update(OPTIMIZERS[name])
    first, second = (
        jax.tree.map(lambda x, p=p: x[p], examples) for p in (slice(60), slice(60, 120))
    )
    dense_state, sparse_state = start(name)
    _, expected = play_dense(name, dense_state, examples)
    packed, scores = play_sparse(name, sparse_state, first)
    _, more_scores = play_dense(name, learner.unpack(packed), second)
    assert_close(jnp.concatenate([scores, more_scores]), expected)
    played, scores = play_dense(name, dense_state, first)
    packed, more_scores = play_sparse(name, learner.pack(played), second)
    assert_close(jnp.concatenate([scores, more_scores]), expected)


def test_filling_up_changes_nothing():
    examples = stream()
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    state = learner.init(SIZE)
    played, expected = play_sparse("coin_betting", state, examples)
    indices, values, slopes = examples
    longer = (
        jnp.pad(indices, ((0, 0), (0, 4)), constant_values=SIZE),
        jnp.pad(values, ((0, 0), (0, 4))),
        slopes,
    )
    longer_played, scores = play_sparse("coin_betting", state, longer)
    assert_close(scores, expected)
    assert_close(learner.unpack(longer_played), learner.unpack(played))
    np.testing.assert_array_equal(longer_played.table[-1], state.table[-1])


def test_several_models_at_once_play_what_each_plays():
    """In streams of their own, with an epsilon of their own."""
    streams = [stream(seed=seed) for seed in range(3)]
    epsilons = jnp.array([0.1, 1.0, 3.0])

    @jax.jit
    def play(epsilon, examples):
        learner = vn.sparse_predict_then_update(vn.diagonal_scale_invariant(epsilon))
        state, scores = jax.lax.scan(
            functools.partial(sparse_round, learner), learner.init(SIZE), examples
        )
        return learner.unpack(state), scores

    states, scores = jax.vmap(play)(epsilons, jax.tree.map(lambda *x: jnp.stack(x), *streams))
    for model, examples in enumerate(streams):
        expected_state, expected = play(epsilons[model], examples)
        assert_close(scores[model], expected)
        assert_close(jax.tree.map(lambda leaf, k=model: leaf[k], states), expected_state)


def test_batches_of_batches_are_played_alike():
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    streams = [stream(40, seed) for seed in range(6)]
    state = learner.init(SIZE)
    play = functools.partial(jax.lax.scan, functools.partial(sparse_round, learner), state)
    stacked = jax.tree.map(lambda *x: jnp.stack(x).reshape(2, 3, *x[0].shape), *streams)
    _, scores = jax.jit(jax.vmap(jax.vmap(play)))(stacked)
    expected = [jax.jit(play)(examples)[1] for examples in streams]
    assert_close(scores.reshape(6, -1), jnp.stack(expected))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_float64_keeps_its_digits(name):
    indices, values, slopes = stream()
    examples = (indices, values.astype(jnp.float64), slopes.astype(jnp.float64))
    dense_state = vn.predict_then_update(OPTIMIZERS[name]).init(jnp.zeros(SIZE, jnp.float64))
    sparse_state = vn.sparse_predict_then_update(OPTIMIZERS[name]).init(SIZE, jnp.float64)
    _, expected = play_dense(name, dense_state, examples)
    _, scores = play_sparse(name, sparse_state, examples)
    assert scores.dtype == jnp.float64
    assert_close(scores, expected, rtol=1e-9)


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.sgd(0.1),
        vn.scale_invariant(),
        vn.full_matrix_scale_invariant(),
        vn.per_coordinate(vn.fixed_norm()),
    ],
)
def test_other_optimizers_are_refused(optimizer):
    with pytest.raises(ValueError, match=r"diagonal_scale_invariant.*`predict_then_update`"):
        vn.sparse_predict_then_update(optimizer).init(SIZE)


def test_narrow_numbers_are_refused():
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    with pytest.raises(ValueError, match="float32 or float64, not bfloat16"):
        learner.init(SIZE, jnp.bfloat16)


@pytest.mark.slow
def test_the_default_is_one_learner_a_coordinate_when_there_are_many():
    """With 513 features, and as Algorithm 3 plays."""
    wide = vn.sparse_predict_then_update(vn.scale_invariant())
    same = vn.sparse_predict_then_update(
        vn.diagonal_scale_invariant(0.3, scale_learner=vn.freegrad_betting)
    )
    examples = stream()
    _, scores = jax.lax.scan(functools.partial(sparse_round, wide), wide.init(513), examples)
    _, expected = jax.lax.scan(functools.partial(sparse_round, same), same.init(513), examples)
    np.testing.assert_array_equal(scores, expected)


def compiled_scan(wrap, size):
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    play = wrap(lambda *x: jax.lax.scan(functools.partial(sparse_round, learner), *x))
    return jax.jit(play, donate_argnums=0).lower(learner.init(size), stream()).compile()


@pytest.mark.parametrize("wrap", [one_kernel, lambda function: function], ids=["one", "many"])
def test_the_table_is_never_copied(wrap):
    text = compiled_scan(wrap, 10_000).as_text()
    assert re.search(r"f32\[10001,\d+\]\S* dynamic-update-slice|f32\[10001,\d+\]\S* fusion", text)
    assert not re.findall(r"= f32\[10001,\d+\]\S* copy\(", text)


def test_one_kernel_changes_nothing_but_the_number_of_kernels():
    examples = stream()
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    _, scores = compiled_scan(one_kernel, SIZE)(learner.init(SIZE), examples)
    _, expected = compiled_scan(lambda function: function, SIZE)(learner.init(SIZE), examples)
    assert_close(scores, expected)
    entry = compiled_scan(one_kernel, SIZE).as_text().split("\nENTRY")[1]
    assert 'xla_cpu_small_call="true"' in entry
    assert " while(" not in entry


@pytest.mark.parametrize("count", [3, 19])
def test_models_at_once_are_eight_to_a_kernel(count):
    """Each with an order of its own, and some numbers from outside of the kernel."""
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    examples = stream()
    keys = jax.random.split(jax.random.key(0), count)
    orders = jax.vmap(lambda key: jax.random.permutation(key, len(examples[0])))(keys)

    def play(state, order):
        def play_row(state, now):
            return sparse_round(learner, state, jax.tree.map(lambda array: array[now], examples))

        return jax.lax.scan(play_row, state, order)

    states = jax.vmap(lambda _: learner.init(SIZE))(orders)
    at_once = jax.jit(jax.vmap(one_kernel(play)))
    _, scores = at_once(states, orders)
    assert_close(scores, jax.jit(jax.vmap(play))(states, orders)[1])
    text = at_once.lower(states, orders).compile().as_text()
    called = re.findall(r"= \(?f32\[(\d+),\d+,\d+\].*xla_cpu_small_call=\"true\"", text)
    assert sorted({*map(int, called)}) == sorted({min(count, 8), count % 8 or 8})


def test_narrow_indices_of_several_models_are_not_cut():
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    values = jnp.array([1.0, -2.0])

    def last_weights(index):
        state = learner.init(200)
        for _ in range(3):
            weights, visit = learner.predict(state, index, values)
            state = learner.update(state, visit, -values)
        return weights

    narrow = jnp.array([1, 199], jnp.uint8)
    several = jax.vmap(last_weights)(jnp.stack([narrow, narrow, narrow]))
    assert np.all(several != 0)
    np.testing.assert_allclose(several, jnp.stack([last_weights(narrow)] * 3), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradients_may_be_numbers_of_another_kind(dtype):
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])

    @jax.jit
    def play(gradient):
        def play_row(_, carry):
            weights, visit = learner.predict(carry[1], [0, 1], [1.0, 2.0])
            return weights, learner.update(carry[1], visit, gradient)

        return jax.lax.fori_loop(0, 6, play_row, (jnp.zeros(2, dtype), learner.init(2, dtype)))[0]

    with jax.enable_x64(True):
        expected = play(jnp.array([-1, -2], dtype))
        assert expected.dtype == dtype
        assert np.all(expected > 0)
        for kind in {jnp.int32, jnp.float16, jnp.float32, jnp.float64} - {dtype}:
            np.testing.assert_array_equal(play(jnp.array([-1, -2], kind)), expected)


def test_an_example_has_as_many_indices_as_values():
    learner = vn.sparse_predict_then_update(OPTIMIZERS["coin_betting"])
    state = learner.init(3)
    for indices, values in (([], []), ([1], [1.0, 2.0]), (1, 1.0)):
        with pytest.raises(ValueError, match="as many indices as values"):
            learner.predict(state, jnp.asarray(indices, jnp.int32), jnp.asarray(values))


@pytest.mark.parametrize("data", [np.arange(4000.0, dtype=np.float32) % 7, None])
def test_a_kernel_uses_large_constants(data):
    """XLA aborts the process if a kernel is called with one."""
    data = jax.random.normal(jax.random.key(0), (4000,)) if data is None else data

    @one_kernel
    def play(scale, *, start=0.0):
        return jax.lax.scan(lambda total, x: (total / 2 + scale * x, None), start, data)[0]

    scales = jnp.arange(9.0)
    totals = jax.jit(jax.vmap(lambda scale: play(scale, start=1.0)))(scales)
    expected = np.sum(np.float64(data) * 0.5 ** np.arange(3999.0, -1, -1))
    np.testing.assert_allclose(totals, scales * expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(play)(scales[2]), 2 * expected, rtol=1e-5)
    assert jax.jit(jax.vmap(play))(scales[:0]).shape == (0,)
