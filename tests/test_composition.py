"""What stands before and after an optimizer in a chain does what it says, and is accounted for."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optax_varynorm as vn

OPTIMIZERS = {
    "fixed_norm": vn.fixed_norm(),
    "diagonal": vn.diagonal(),
    "full_matrix": vn.full_matrix(),
    "varynorm": vn.varynorm(),
}
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
START = {"free": jnp.array([0.5, -1.0, 2.0]), "held": jnp.array([[3.0, -2.0]])}
TARGET = {"free": jnp.array([1.0, 1.0, -1.0]), "held": jnp.array([[0.0, 4.0]])}


def loss(params):
    differences = jax.tree.map(jnp.subtract, params, TARGET)
    return jnp.sqrt(1 + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(differences)))


def train(optimizer, params=START, steps=300, of=loss):
    """The last parameters and state, and the points of all rounds with their gradients."""

    def step(carry, _):
        params, state = carry
        gradient = jax.grad(of)(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), (params, gradient)

    @jax.jit
    def run(params):
        return jax.lax.scan(step, (params, optimizer.init(params)), length=steps)

    with jax.numpy_dtype_promotion("standard"):  # some of Optax's wrappers need it
        (params, state), (points, gradients) = run(params)
    return params, state, points, gradients


def free_part(params):
    return loss({"free": params["free"], "held": TARGET["held"]})


@every_optimizer
def test_decoupled_weight_decay_acts_once_and_stays(optimizer):
    """Where there is no gradient there is nothing but the decay."""
    chain = optax.chain(optimizer, optax.add_decayed_weights(-0.01))
    params, *_ = train(chain, steps=50, of=lambda params: 0.0 * loss(params))
    for name, leaf in START.items():
        np.testing.assert_allclose(params[name], 0.99**50 * leaf, rtol=1e-5)


@every_optimizer
def test_decoupled_weight_decay_moves_the_equilibrium(optimizer):
    """Of a loss that pulls to 1 and a decay that pulls to 0, as for gradient descent."""
    chain = optax.chain(optimizer, optax.add_decayed_weights(-1e-3))
    params, *_ = train(chain, steps=2000)
    assert loss(params) < 1.2
    assert np.all(np.isfinite(params["free"]))


@every_optimizer
def test_a_zero_schedule_freezes(optimizer):
    params, state, *_ = train(optax.chain(optimizer, optax.scale_by_schedule(lambda _: 0.0)))
    for name, leaf in START.items():
        np.testing.assert_array_equal(params[name], leaf)
    for _, wealth in optax.tree.get_all_with_path(state, "log_wealth"):
        assert np.all(np.abs(wealth) < 2)


@every_optimizer
def test_what_a_schedule_froze_at_first_moves_as_soon_as_it_may(optimizer):
    """A warm-up starts at zero in its first step."""
    warm = optax.chain(optimizer, optax.scale_by_schedule(optax.linear_schedule(0.0, 1.0, 20)))
    params, *_ = train(warm, steps=600)
    assert loss(params) < 1.05


@every_optimizer
def test_a_half_schedule_halves_the_displacement_of_each_step(optimizer):
    """For gradients that do not depend on where they are taken."""

    def linear(params):
        return jnp.sum(params["free"] * jnp.array([0.3, -0.2, 0.1])) + 0.1 * jnp.sum(params["held"])

    halved = optax.chain(optimizer, optax.scale_by_schedule(lambda _: 0.5))
    whole, half = (train(each, steps=40, of=linear)[0] for each in (optimizer, halved))
    for name, leaf in START.items():
        np.testing.assert_allclose(half[name] - leaf, (whole[name] - leaf) / 2, rtol=1e-4)


FREEZERS = {
    "freeze": lambda: optax.transforms.freeze({"free": False, "held": True}),
    "masked": lambda: optax.masked(optax.set_to_zero(), {"free": False, "held": True}),
    "partition": lambda: optax.partition(
        {"learn": optax.identity(), "keep": optax.set_to_zero()}, {"free": "learn", "held": "keep"}
    ),
}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("name", FREEZERS)
@every_optimizer
def test_free_leaves_do_as_well_beside_frozen_ones(optimizer, name, place):
    """The loss is a sum over leaves, so what the frozen leaf pays does not depend on the others."""

    def separate(params):
        return free_part(params) + loss({"free": TARGET["free"], "held": params["held"]})

    frozen = (FREEZERS[name](), optimizer) if place == "before" else (optimizer, FREEZERS[name]())
    params, *_ = train(optax.chain(*frozen), of=separate)
    alone, *_ = train(
        optimizer, {"free": START["free"]}, of=lambda p: free_part({**p, "held": START["held"]})
    )
    np.testing.assert_array_equal(params["held"], START["held"])
    assert free_part(params) - 1 <= 1.1 * (free_part(alone) - 1) + 1e-3


@every_optimizer
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_free_entries_do_as_well_beside_frozen_ones_of_their_leaf(optimizer, dtype):
    """A mask of entries after the optimizer, such as that of a pruned network."""
    target, keep = jnp.array([1.0, 1, -1, 2, -2, 3]), jnp.array([1.0, 0, 1, 0, 1, 0])
    mask = optax.stateless(lambda updates, params: updates * keep.astype(updates.dtype))

    def excess(params, target):
        return jnp.sum(jnp.sqrt(1 + (params.astype(jnp.float32) - target) ** 2) - 1)

    start = jnp.full(6, 4.0, dtype)
    # In bfloat16 a frozen entry is told from one whose steps are too small only after some rounds.
    steps = 300 if dtype == "float32" else 1500
    params, *_ = train(
        optax.chain(optimizer, mask), start, steps, of=lambda params: excess(params, target)
    )
    alone, *_ = train(optimizer, start[::2], steps, of=lambda params: excess(params, target[::2]))
    np.testing.assert_array_equal(params[1::2], start[1::2])
    rounding = 1e-2 if dtype == "float32" else 5e-2
    assert excess(params[::2], target[::2]) <= 1.1 * excess(alone, target[::2]) + rounding


@every_optimizer
def test_averages_and_decaying_schedules_of_updates_learn(optimizer):
    chains = {
        "ema": optax.chain(optimizer, optax.ema(0.5)),
        "plateau": optax.chain(
            optimizer, optax.scale_by_schedule(lambda count: 1 / (1 + count / 300))
        ),
    }
    for name, chain in chains.items():
        params, *_ = train(chain, steps=600)
        assert loss(params) < 1.1, name


def test_lookahead_learns():
    optimizer = optax.lookahead(vn.diagonal(), sync_period=5, slow_step_size=0.5)
    params = optax.LookaheadParams.init_synced(START)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params.fast), state, params)
        return optax.apply_updates(params, updates), state

    with jax.numpy_dtype_promotion("standard"):
        for _ in range(400):
            params, state = step(params, state)
    assert loss(params.slow) < 1.1


def test_a_plateau_reduces_the_steps():
    optimizer = optax.chain(vn.diagonal(), optax.contrib.reduce_on_plateau(factor=0.5, patience=5))
    params, state = START, optimizer.init(START)

    @jax.jit
    def step(params, state):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params, value=value)
        return optax.apply_updates(params, updates), state

    with jax.numpy_dtype_promotion("standard"):
        for _ in range(400):
            params, state = step(params, state)
    assert loss(params) < 1.1


@every_optimizer
def test_steps_over_several_batches_are_those_of_their_mean(optimizer):
    """Few of them: rounding is another in `cond`, and grows a thousandfold in some more rounds."""
    several = optax.MultiSteps(optimizer, every_k_schedule=4).gradient_transformation()
    alone, *_ = train(optimizer, steps=12)
    together, *_ = train(several, steps=48)
    for name in START:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-4, atol=1e-5)
        assert np.all(alone[name] != START[name])


def test_rounds_that_are_not_finite_change_nothing():
    optimizer = optax.apply_if_finite(vn.full_matrix(), max_consecutive_errors=3)
    params, state = START, optimizer.init(START)
    with jax.numpy_dtype_promotion("standard"):
        for scale in (1.0, np.nan, 1.0):
            gradient = jax.tree.map(lambda leaf, scale=scale: scale * leaf, START)
            updates, state = jax.jit(optimizer.update)(gradient, state, params)
            params = optax.apply_updates(params, updates)
    assert state.total_notfinite == 1
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(params))


def test_a_layer_that_runs_in_some_rounds_only_plays_those_rounds():
    """Every other gradient is for somebody else, under `cond`."""
    direction = optax.conditionally_transform(vn.ftrl_step(), lambda step, *_, **__: step % 2 == 0)
    optimizer = vn.with_varying_norm(vn.full_matrix_norm(), vn.scale_by_coin_betting(direction))
    gradients = jnp.asarray(np.random.default_rng(0).normal(size=(20, 2)) / 3)
    params, state = jnp.zeros(2), optimizer.init(jnp.zeros(2))
    update = jax.jit(optimizer.update)
    with jax.numpy_dtype_promotion("standard"):
        for gradient in gradients.astype(jnp.float32):
            updates, state = update(gradient, state, params)
            params = optax.apply_updates(params, updates)
    received = optax.tree.get(state, "gradient_sum")
    np.testing.assert_allclose(received, np.sum(gradients[::2], axis=0), rtol=1e-5)


def test_a_schedule_free_average_learns_around_an_optimizer():
    optimizer = optax.contrib.schedule_free(vn.fixed_norm(), learning_rate=1.0)
    params, state, *_ = train(optimizer, steps=500)
    assert loss(optax.contrib.schedule_free_eval_params(state, params)) < 1.1


@every_optimizer
def test_a_parameter_moved_by_hand_keeps_what_was_added(optimizer):
    _, state, *_ = train(optimizer, steps=20)
    params = START
    nothing = optax.tree.zeros_like(params)
    moved = jax.tree.map(lambda leaf: leaf + 7, params)
    updates, state = jax.jit(optimizer.update)(nothing, state, moved)
    for leaf in jax.tree.leaves(updates):
        np.testing.assert_allclose(leaf, 0, atol=1e-5)


SHIFTS = {
    "decay": lambda: optax.add_decayed_weights(-0.02),
    "schedule": lambda: optax.scale_by_schedule(lambda count: 1 / (1 + count / 10)),
    "reverse": lambda: optax.scale(-0.3),
    "freeze": lambda: optax.transforms.freeze({"free": False, "held": True}),
    "noise": lambda: optax.add_noise(0.1, 0.5, jax.random.key(0)),
    "ema": lambda: optax.ema(0.9),
    "clip": lambda: optax.clip(1e-2),
}


@functools.cache
def accounted(name, shift):
    """A compiled game with a transformation behind the learner: sums by hand, and the claims."""
    tracked = vn.track_regret(OPTIMIZERS[name])
    optimizer = optax.chain(tracked, SHIFTS[shift]())

    @jax.jit
    def run(gradients, comparators):
        def step(carry, gradient):
            params, state = carry
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), params

        start = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), START)
        (_, state), points = jax.lax.scan(step, (start, optimizer.init(start)), gradients)
        return (
            points,
            jax.vmap(lambda u: vn.regret(state, u))(comparators),
            jax.vmap(lambda u: vn.regret_bound(tracked, state, u))(comparators),
        )

    return run


@pytest.mark.parametrize("shift", SHIFTS)
@every_optimizer
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_regret_is_exact_and_below_its_bound_whatever_comes_after(optimizer, shift, seed):
    (name,) = (name for name, each in OPTIMIZERS.items() if each is optimizer)
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return {
            key: rng.normal(size=(*shape, *leaf.shape))
            * 10.0
            ** rng.normal(size=(*shape, 1, 1))[..., : leaf.ndim].reshape(*shape, *(1,) * leaf.ndim)
            for key, leaf in START.items()
        }

    gradients, comparators = draw(30), draw(5)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        arrays = jax.tree.map(jnp.asarray, (gradients, comparators))
        played = accounted(name, shift)(*arrays)
        points, regrets, bounds = jax.tree.map(np.asarray, played)
    terms = [
        gradients[key][:, None] * (points[key][:, None] - comparators[key][None]) for key in START
    ]
    by_hand, size = (
        sum(np.sum(of(term), axis=(0, *range(2, term.ndim))) for term in terms)
        for of in (np.positive, np.abs)
    )
    np.testing.assert_allclose(regrets, by_hand, atol=1e-11 * np.max(size))
    assert np.all(regrets <= bounds + 1e-9 * size)


@every_optimizer
def test_states_are_arrays_and_go_on_from_a_checkpoint(optimizer):
    """By pickle, by plain dictionaries of arrays, and in a program that was exported."""
    tracked = vn.track_regret(optimizer)
    params, state, *_ = train(tracked, steps=30)
    gradient = jax.grad(loss)(params)
    expected, _ = jax.jit(tracked.update)(gradient, state, params)

    leaves, structure = jax.tree.flatten(state)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    saved = {str(k): np.asarray(leaf) for k, leaf in enumerate(leaves)}
    fresh = jax.tree.structure(tracked.init(params))
    assert fresh == structure
    restored = jax.tree.unflatten(fresh, [jnp.asarray(saved[str(k)]) for k in range(len(saved))])
    exported = jax.export.export(
        jax.jit(
            lambda g, leaves, p: jax.tree.leaves(
                tracked.update(g, jax.tree.unflatten(fresh, leaves), p)
            )
        )
    )(gradient, leaves, params)
    again = jax.export.deserialize(exported.serialize())
    for updates in (
        jax.jit(tracked.update)(gradient, restored, params)[0],
        jax.jit(tracked.update)(gradient, pickle.loads(pickle.dumps(state)), params)[0],
        dict(zip(params, again.call(gradient, leaves, params)[: len(params)], strict=True)),
    ):
        jax.tree.map(np.testing.assert_array_equal, updates, expected)


@every_optimizer
def test_sharpness_aware_minimization_learns_around_an_optimizer(optimizer):
    """It blends states by arithmetic, so no leaf of one may be a boolean."""
    sharp = optax.contrib.sam(optimizer, optax.sgd(0.02), sync_period=2)
    params, *_ = train(sharp, steps=600)
    assert loss(params) < 1.1


@pytest.mark.parametrize(
    "optimizer",
    [
        vn.combine(vn.fixed_norm(), vn.diagonal()),
        vn.per_block(vn.full_matrix()),
        vn.per_coordinate(vn.fixed_norm()),
    ],
    ids=["combine", "per_block", "per_coordinate"],
)
def test_narrow_parameters_arrive_in_every_wrapper(optimizer):
    target = jnp.array([67.0, 62.0, 64.5, 72.0])

    def distance(params):
        return jnp.sum(jnp.sqrt(1 + (params.astype(jnp.float32) - target) ** 2))

    params, *_ = train(optimizer, jnp.full(4, 64.0, jnp.bfloat16), 1000, of=distance)
    np.testing.assert_allclose(params.astype(jnp.float32), target, atol=1.0)


def test_bfloat16_does_not_stall():
    """Ten thousand rounds around a parameter that single updates are too small to move."""
    target = jnp.array([1.25, -3.0, 100.0])
    params = jnp.array([1.0, 1.0, 101.0], jnp.bfloat16)
    optimizer = vn.diagonal(epsilon=1e-3)

    def gradient_at(w):
        return jnp.sign(w.astype(jnp.float32) - target).astype(jnp.bfloat16)

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(gradient_at(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=10_000))(
        (params, optimizer.init(params))
    )
    np.testing.assert_allclose(params.astype(jnp.float32), target, rtol=0.02, atol=0.02)
