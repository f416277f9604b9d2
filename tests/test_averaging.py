"""Online-to-batch: averages of iterates, and gradients taken at the average."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn

LEARNERS = {
    # Weights of up to 120 lengthen the gradients; what is clipped is regret like any other.
    "full_matrix": lambda: vn.full_matrix(epsilon=10.0, lipschitz=2.0),
    "sgd": lambda: optax.sgd(0.1),
}
every_learner = pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
TARGET = {"a": np.array([1.5, -0.5]), "b": np.float64(0.7)}
ROUNDS = 120


def loss(params):
    """Convex, not smooth, Lipschitz, zero at the target only."""
    gaps = jax.tree.map(lambda p, t: p - jnp.asarray(t, p.dtype), params, TARGET)
    return jnp.sqrt(jnp.sum(gaps["a"] ** 2) + 1e-12) + jnp.abs(gaps["b"] + 0.5 * gaps["a"][0])


def start(dtype=jnp.float32):
    return {"a": jnp.zeros(2, dtype), "b": jnp.zeros((), dtype)}


@functools.partial(jax.jit, static_argnums=(0, 2))
def descend(optimizer, params, rounds=ROUNDS):
    """The points of rounds 1 to T, the gradients there, and the states before them and after."""

    def play_round(carry, _):
        params, state = carry
        gradient = jax.grad(loss)(params)
        updates, new_state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), new_state), (params, gradient, state)

    (params, state), rest = jax.lax.scan(
        play_round, (params, optimizer.init(params)), length=rounds
    )
    return *rest, params, state


def flat(tree):
    return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(tree)], 1)


def flat_target():
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(TARGET)])


@every_learner
def test_the_average_is_that_of_the_points_and_jensen_holds(x64, learner):
    points, gradients, _, _, state = descend(vn.with_averaging(learner()), start(jnp.float64))
    average = vn.averaged_params(state)
    brute = jax.tree.map(lambda leaf: np.mean(leaf, axis=0), points)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9), average, brute)
    regret = np.sum(flat(gradients) * (flat(points) - flat_target()))
    assert 0 <= float(loss(average)) <= regret / ROUNDS


def test_averaging_leaves_the_learner_alone_and_weighs_as_told(x64):
    points, *_ = descend(optax.sgd(0.1), start(jnp.float64))
    same, _, _, _, state = descend(vn.with_averaging(optax.sgd(0.1), power=1.0), start(jnp.float64))
    jax.tree.map(np.testing.assert_array_equal, points, same)
    assert int(state.averaged_rounds) == ROUNDS
    weights = np.arange(1, ROUNDS + 1)
    brute = jax.tree.map(lambda leaf: np.average(leaf, axis=0, weights=weights), points)
    average = vn.averaged_params(state)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9), average, brute)


@pytest.mark.parametrize(
    ("learner", "power"),
    [
        (LEARNERS["full_matrix"], 0.0),
        (LEARNERS["sgd"], 1.0),
        pytest.param(LEARNERS["full_matrix"], 1.0, marks=pytest.mark.slow),
    ],
)
def test_anytime_parameters_are_the_average_and_its_theorem_holds(x64, learner, power):
    """After every round: f(x_T) - f* <= weighted regret / sum of weights, by brute force."""
    points, gradients, states, params, state = descend(
        vn.anytime(learner(), power), start(jnp.float64)
    )
    weights = np.arange(1, ROUNDS + 1.0)[:, None] ** power
    iterates, total = flat(states.anytime_iterate), np.cumsum(weights)[:, None]
    averages = np.cumsum(weights * iterates, axis=0) / total
    np.testing.assert_allclose(flat(points), averages, rtol=1e-9, atol=1e-12)
    regrets = np.cumsum(weights * flat(gradients) * (iterates - flat_target()), axis=0)
    gaps = np.asarray(jax.vmap(loss)(points))
    assert np.all(gaps <= np.sum(regrets, axis=1) / total[:, 0] * (1 + 1e-9) + 1e-9)
    assert gaps[-1] < 0.8 * gaps[0]
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-12),
        vn.averaged_params(state),
        params,
    )


def test_the_inner_learner_is_given_its_own_iterate(x64):
    """An inner learner that returns ``target - params`` must land on the target, then stay."""
    goal = jnp.array([3.0, -1.0])
    jump = optax.GradientTransformation(
        lambda params: optax.EmptyState(),
        lambda updates, state, params: (goal - params, state),
    )
    optimizer = vn.anytime(jump)
    params = jnp.zeros(2)
    state = optimizer.init(params)
    for round_number in range(2, 6):
        updates, state = optimizer.update(jnp.ones(2), state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(state.anytime_iterate, goal, rtol=1e-12)
        np.testing.assert_allclose(params, goal * (1 - 1 / round_number), rtol=1e-12)


def test_the_inner_learner_receives_weighted_gradients(x64):
    power = 1.0
    _, gradients, states, _, _ = descend(vn.anytime(optax.sgd(0.1), power), start(jnp.float64))
    steps = np.diff(flat(states.anytime_iterate), axis=0)
    weights = np.arange(1, ROUNDS)[:, None] ** power
    np.testing.assert_allclose(steps, -0.1 * weights * flat(gradients)[:-1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("wrap", [vn.with_averaging, vn.anytime])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_dtypes_are_kept_and_state_can_be_donated_without_a_second_trace(wrap, dtype):
    optimizer = wrap(optax.sgd(0.1, momentum=0.9))
    params = start(dtype)
    state = optimizer.init(params)
    update = jax.jit(lambda g, s, p: optimizer.update(g, s, p), donate_argnums=(1, 2))
    for _ in range(3):
        gradient = jax.grad(loss)(params)
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(start(dtype), updates)
    assert update._cache_size() == 1
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves((updates, params)))
    kept, narrowed = vn.averaged_params(state), vn.averaged_params(state, params)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(kept))
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(narrowed))


def test_the_average_of_narrow_parameters_does_not_stall():
    """In bfloat16 one part in a thousand of a gap rounds to nothing; the average has float32."""
    optimizer = vn.with_averaging(optax.identity())
    points = jnp.tile(jnp.array([0.0, 1.0, 1.0, 1.0], jnp.bfloat16), 1000)
    state, _ = jax.lax.scan(
        lambda state, point: (optimizer.update(point, state, point)[1], None),
        optimizer.init(points[0]),
        points,
    )
    np.testing.assert_allclose(vn.averaged_params(state), 0.75, rtol=1e-3)


@pytest.mark.parametrize("wrap", [vn.with_averaging, vn.anytime])
def test_averages_vmap_over_starts(wrap):
    optimizer = wrap(optax.sgd(0.1))
    starts = jnp.array([[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]])
    unflatten = lambda row: {"a": row[:2], "b": row[2]}  # noqa: E731
    run = lambda row: vn.averaged_params(descend(optimizer, unflatten(row), 20)[-1])  # noqa: E731
    together = jax.vmap(run)(starts)
    for i, row in enumerate(starts):
        jax.tree.map(
            lambda leaf, alone, i=i: np.testing.assert_allclose(leaf[i], alone, rtol=1e-5),
            together,
            run(row),
        )


def test_the_average_is_found_inside_a_chain_or_said_to_be_missing():
    params = jnp.ones(2)
    chain = optax.chain(optax.clip(1.0), vn.with_averaging(vn.full_matrix(lipschitz=1.0)))
    np.testing.assert_array_equal(vn.averaged_params(chain.init(params)), params)
    injected = optax.inject_hyperparams(lambda rate: vn.anytime(optax.sgd(rate)))(rate=0.1)
    np.testing.assert_array_equal(vn.averaged_params(injected.init(params)), params)
    with pytest.raises(ValueError, match=r"no average.*with_averaging"):
        vn.averaged_params(optax.adam(0.1).init(params))
    with pytest.raises(ValueError, match="2 averages"):
        vn.averaged_params(vn.anytime(vn.with_averaging(optax.sgd(0.1))).init(params))


@pytest.mark.parametrize("wrap", [vn.with_averaging, vn.anytime])
def test_missing_parameters_and_bad_powers_are_refused(wrap):
    optimizer = wrap(optax.sgd(0.1))
    state = optimizer.init(jnp.ones(2))
    with pytest.raises(ValueError, match=r"update\(gradients, state, params\)"):
        optimizer.update(jnp.ones(2), state)
    for power in (-1.0, float("nan"), "linear"):
        with pytest.raises(ValueError, match="`power`"):
            wrap(optax.sgd(0.1), power=power)


@jax.tree_util.register_pytree_with_keys_class
class Kept:
    """Like a variable that flax's optimizer keeps: the same leaf in a container of its own."""

    def __init__(self, value):
        self.value = value

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey("value"), self.value)], None

    @classmethod
    def tree_unflatten(cls, structure, leaves):
        return cls(*leaves)


@jax.tree_util.register_pytree_with_keys_class
class Parameter(Kept):
    """Like a parameter of flax's model."""


@pytest.mark.parametrize("wrap", [vn.with_averaging, vn.anytime])
def test_an_average_is_put_into_the_parameters_own_containers(wrap):
    kept, params = {"a": Kept(jnp.ones(2))}, {"a": Parameter(jnp.zeros(2, jnp.bfloat16))}
    average = vn.averaged_params(wrap(optax.sgd(0.1)).init(kept), params)
    assert jax.tree.structure(average) == jax.tree.structure(params)
    assert average["a"].value.dtype == jnp.bfloat16
    np.testing.assert_array_equal(average["a"].value, jnp.ones(2, jnp.bfloat16))
    with pytest.raises(ValueError, match=r"nnx\.as_pure"):
        vn.averaged_params(wrap(optax.sgd(0.1)).init(kept), {"a": jnp.zeros(2)})
