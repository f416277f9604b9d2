"""The optimizers inside Optax's wrappers and JAX's transformations."""

import functools
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from tests.playing import play, stream

OPTIMIZERS = {
    "fixed_norm": functools.partial(vn.fixed_norm),
    "fixed_norm_1.5": functools.partial(vn.fixed_norm, p=1.5),
    "diagonal": functools.partial(vn.diagonal),
    "full_matrix": functools.partial(vn.full_matrix),
    "full_matrix_adagrad": functools.partial(vn.full_matrix_adagrad),
    "full_matrix_on_a_ball": functools.partial(vn.full_matrix, domain=vn.l2_ball(2.0)),
    "full_matrix_adagrad_on_a_ball": functools.partial(
        vn.full_matrix_adagrad, domain=vn.l2_ball(2.0)
    ),
}
# Those take long to compile.
SLOW = {"adagrad", "ball"}
every_optimizer = pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[pytest.mark.slow] if SLOW & {*name.split("_")} else [])
        for name, make in OPTIMIZERS.items()
    ],
)
PARAMS = {"a": jnp.array([0.1, -0.2]), "b": {"c": jnp.array([[0.3], [0.0]]), "d": jnp.float32(0.5)}}


def loss(params):
    """Convex, 1-Lipschitz near its minimizer at 0.3."""
    dtype = jnp.float64 if jax.tree.leaves(params)[0].dtype == jnp.float64 else jnp.float32
    leaves = [leaf.astype(dtype) for leaf in jax.tree.leaves(params)]
    return jnp.sqrt(1 + sum(jnp.sum((leaf - 0.3) ** 2) for leaf in leaves))


@functools.partial(jax.jit, static_argnums=(0, 2))
def train(optimizer, params=PARAMS, steps=300):
    def step(carry, _):
        params, state = carry
        gradient = jax.grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), loss(params)

    carry = (params, optimizer.init(params))
    (params, state), losses = jax.lax.scan(step, carry, length=steps)
    return params, state, losses


@every_optimizer
def test_a_tree_of_parameters_is_learned(make):
    _, _, losses = train(make())
    assert losses[-1] - 1 < 0.1 * (losses[0] - 1)


WRAPPERS = {
    "chain": lambda optimizer: optax.chain(optax.clip_by_global_norm(1.0), optimizer),
    "masked": lambda optimizer: optax.masked(optimizer, {"a": True, "b": {"c": True, "d": True}}),
    "partition": lambda optimizer: optax.partition({"all": optimizer}, "all"),
    "apply_if_finite": lambda optimizer: optax.apply_if_finite(optimizer, 5),
    "MultiSteps": lambda optimizer: optax.MultiSteps(
        optimizer, every_k_schedule=1
    ).gradient_transformation(),
}


def assert_plays_the_same(wrapped, bare):
    """In float64: the wrappers' branches are compiled, and so rounded, differently."""
    params = optax.tree.cast(PARAMS, jnp.float64)
    expected, _, _ = train(bare, params, steps=20)
    with jax.numpy_dtype_promotion("standard"):
        played, _, _ = train(wrapped, params, steps=20)
    chex.assert_trees_all_close(played, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_that_change_nothing_change_nothing(x64, name):
    assert_plays_the_same(WRAPPERS[name](vn.full_matrix()), vn.full_matrix())


@every_optimizer
def test_all_wrappers_around_each_other_change_nothing(x64, make):
    wrapped = make()
    for wrap in WRAPPERS.values():
        wrapped = wrap(wrapped)
    assert_plays_the_same(wrapped, make())


def test_masked_leaves_are_left_alone():
    mask = {"a": True, "b": {"c": False, "d": False}}
    optimizer = optax.chain(
        optax.masked(vn.full_matrix(), mask),
        optax.masked(optax.set_to_zero(), {"a": False, "b": {"c": True, "d": True}}),
    )
    params, _, _ = train(optimizer)
    chex.assert_trees_all_equal(params["b"], PARAMS["b"])
    np.testing.assert_allclose(params["a"], 0.3, atol=0.05)


def test_partitions_learn_side_by_side():
    labels = {"a": "matrix", "b": {"c": "fixed", "d": "fixed"}}
    optimizer = optax.partition({"matrix": vn.full_matrix(), "fixed": vn.fixed_norm()}, labels)
    _, _, losses = train(optimizer)
    assert losses[-1] - 1 < 0.1 * (losses[0] - 1)


@every_optimizer
def test_hyperparameters_can_be_injected(make):
    # A structural choice (which p, hence which projection) stays static on a domain.
    injected = optax.inject_hyperparams(make)(epsilon=0.7, lipschitz=2.0)
    with jax.numpy_dtype_promotion("standard"):
        wrapped, state, _ = train(injected, steps=20)
    bare, _, _ = train(make(epsilon=0.7, lipschitz=2.0), steps=20)
    chex.assert_trees_all_close(wrapped, bare, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(state.hyperparams["epsilon"], 0.7, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_injected_hyperparameters_are_widened_before_use(dtype):
    """``inject_hyperparams`` casts them to the parameters' dtype, where 300^2 overflows."""
    params = jnp.zeros(2, dtype)
    gradient = jnp.array([180.0, -240.0], dtype)
    for make in (vn.fixed_norm, vn.diagonal, vn.full_matrix, vn.full_matrix_adagrad):
        learned = []
        for optimizer in (make(lipschitz=300.0), optax.inject_hyperparams(make)(lipschitz=300.0)):
            with jax.numpy_dtype_promotion("standard"):
                state = optimizer.init(params)
                point = params
                for _ in range(5):
                    updates, state = jax.jit(optimizer.update)(gradient, state, point)
                    point = optax.apply_updates(point, updates)
            learned.append(np.asarray(point, np.float32))
        assert np.any(learned[0])
        np.testing.assert_allclose(learned[1], learned[0], rtol=0.02, atol=1e-6)


@pytest.mark.slow
@every_optimizer
def test_derivatives_through_the_optimizer_are_finite(make):
    """Also at a zero gradient, whose length has no derivative; in forward mode."""
    optimizer = make()

    def last_point(gradients):
        params = jnp.zeros(3)
        state = optimizer.init(params)
        for gradient in gradients:
            updates, state = optimizer.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
        return jnp.sum(params)

    gradients = jnp.array([[0.3, 0.2, 0.1], [0.0, 0.0, 0.0], [0.1, 0.2, 0.3]])
    assert np.all(np.isfinite(jax.jacfwd(last_point)(gradients)))


@every_optimizer
def test_state_leaves_like_parameters_are_found(make):
    optimizer = make()
    state = optimizer.init(PARAMS)

    def mark(leaf, param):
        assert leaf.shape == param.shape
        return leaf + 1

    marked = optax.tree.map_params(optimizer, mark, state, PARAMS)
    np.testing.assert_array_equal(optax.tree.get(marked, "gradient_sum")["a"], 1)
    # The matrix and the counters are not shaped like the parameters.
    for name in ("matrix", "skipped_rounds"):
        found = (optax.tree.get_all_with_path(tree, name) for tree in (marked, state))
        chex.assert_trees_all_equal(*([leaf for _, leaf in leaves] for leaves in found))


@every_optimizer
def test_state_fields_have_one_name_each(make):
    state = make().init(PARAMS)
    names = ["unmoved_at", "norm_state", "skipped_rounds", "clipped_rounds", "sum_rounding"]
    names += ["charged", "gradient_sum", "squared_dual_norm_sum", "log_wealth", "bet_fraction"]
    for name in names:
        assert len(optax.tree.get_all_with_path(state, name)) == 1, name


@every_optimizer
def test_the_second_step_does_not_recompile(make):
    optimizer = make()
    traces = []

    @jax.jit
    def step(*args):
        traces.append(args)
        return optimizer.update(*args)

    state = optimizer.init(PARAMS)
    params = PARAMS
    for _ in range(3):
        updates, state = step(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    assert len(traces) == 1


@every_optimizer
@pytest.mark.parametrize("compiled_init", [False, True])
def test_parameters_and_state_can_be_donated(make, compiled_init):
    optimizer = make()
    expected, _, _ = train(optimizer, steps=3)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(jnp.array, PARAMS)
    state = (jax.jit(optimizer.init) if compiled_init else optimizer.init)(params)
    with warnings.catch_warnings():
        # The copy of the start that the learner keeps may share nothing with the output.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        for _ in range(3):
            params, state = step(params, state)
    chex.assert_trees_all_close(params, expected, rtol=1e-5, atol=1e-6)


@every_optimizer
def test_a_state_shares_no_buffer_with_parameters_of_mixed_types(make):
    """After an eager update, too, where a cast to the same type is the same array."""
    params = {"wide": jnp.full(3, 0.5), "narrow": jnp.full(3, 0.5, jnp.bfloat16)}
    optimizer = make()
    _, state = optimizer.update(params, optimizer.init(params), params)
    pointers = {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(params)}
    assert not pointers & {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)}


@every_optimizer
def test_no_two_leaves_share_a_buffer(make):
    params = jax.tree.map(jnp.array, PARAMS)
    leaves = [leaf for leaf in jax.tree.leaves((params, make().init(params))) if leaf.size]
    pointers = [leaf.unsafe_buffer_pointer() for leaf in leaves]
    assert len(set(pointers)) == len(pointers)


@every_optimizer
def test_seeds_run_side_by_side(make):
    gradients = np.stack([stream("random", 30, 4, seed) for seed in range(5)]).astype(np.float32)
    optimizer = make()

    def run(gradients):
        def step(carry, gradient):
            params, state = carry
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), params

        return jax.lax.scan(step, (jnp.zeros(4), optimizer.init(jnp.zeros(4))), gradients)[1]

    together = jax.jit(jax.vmap(run))(gradients)
    for seed in range(5):
        alone = play(optimizer, jnp.asarray(gradients[seed]), jnp.zeros(4)).points[:-1]
        np.testing.assert_allclose(together[seed], alone, atol=1e-5)


@every_optimizer
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_every_float_type_is_learned_in(make, dtype):
    with jax.enable_x64(dtype == "float64"):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), PARAMS)
        learned, state, losses = train(make(), params)
        assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(learned))
        floats = [
            leaf.dtype
            for path, leaf in jax.tree_util.tree_leaves_with_path(state)
            if jnp.issubdtype(leaf.dtype, jnp.floating)
            and not {"left_from", "unmoved_at"} & {getattr(key, "name", "") for key in path}
        ]
        assert all(kind == ("float64" if dtype == "float64" else "float32") for kind in floats)
        assert losses[-1] - 1 < 0.15 * (losses[0] - 1)


def test_mixed_float_types_keep_their_own():
    params = {"a": jnp.zeros(2, jnp.bfloat16), "b": jnp.zeros(3, jnp.float32)}
    learned, _, losses = train(vn.full_matrix(), params)
    assert learned["a"].dtype == jnp.bfloat16
    assert learned["b"].dtype == jnp.float32
    assert losses[-1] - 1 < 0.15 * (losses[0] - 1)


@every_optimizer
@pytest.mark.parametrize("params", [{}, (), {"a": jnp.zeros((0,))}], ids=["dict", "tuple", "d=0"])
def test_empty_parameters_are_fine(make, params):
    optimizer = make()
    state = optimizer.init(params)
    for _ in range(2):
        updates, state = jax.jit(optimizer.update)(params, state, params)
    chex.assert_trees_all_equal_shapes(updates, params)


@every_optimizer
def test_scalars_are_parameters(make):
    params, _, losses = train(make(), jnp.array(0.0))
    assert params.shape == ()
    assert losses[-1] - 1 < 0.1 * (losses[0] - 1)


def test_complex_parameters_say_what_to_do():
    params = jnp.zeros(2, jnp.complex64)
    with pytest.raises(ValueError, match="split_real_and_imaginary"):
        vn.full_matrix().init(params)
    optimizer = optax.contrib.split_real_and_imaginary(vn.full_matrix())
    state = optimizer.init(params)
    with jax.numpy_dtype_promotion("standard"):  # the wrapper needs it
        updates, _ = optimizer.update(jnp.array([0.5j, 0.1 + 0j], jnp.complex64), state, params)
    assert updates.dtype == jnp.complex64


def test_any_optax_optimizer_may_learn_the_direction_or_the_scale():
    for optimizer in (
        vn.scale_by_coin_betting(optax.sgd(0.1), vn.coin_betting()),
        vn.with_varying_norm(
            vn.full_matrix_norm(), vn.scale_by_coin_betting(vn.ftrl_step(), optax.sgd(1.0))
        ),
        vn.with_varying_norm(vn.lp_norm(), vn.project(vn.l2_ball(3.0), optax.adam(0.01))),
    ):
        with jax.numpy_dtype_promotion("standard"):  # Optax's own optimizers need it
            _, _, losses = train(optimizer)
        assert np.all(np.isfinite(losses))
        assert losses[-1] < losses[0]


def test_extra_arguments_pass_through():
    def needs_value(updates, state, params=None, *, value, **extra_args):
        del params, extra_args
        return jax.tree.map(lambda g: -0.01 * value * g, updates), state

    learner = optax.GradientTransformationExtraArgs(lambda params: (), needs_value)
    optimizer = vn.with_varying_norm(vn.lp_norm(), vn.project(vn.l2_ball(1.0), learner))
    state = optimizer.init(jnp.zeros(2))
    updates, _ = optimizer.update(jnp.ones(2) / 2, state, jnp.zeros(2), value=2.0)
    np.testing.assert_allclose(updates, -0.01, rtol=1e-5)


@pytest.mark.parametrize("make", [vn.fixed_norm, vn.diagonal])
def test_derivatives_of_both_modes_where_there_is_no_matrix(make, x64):
    """Of the loss after some rounds, by where they started."""
    optimizer = make()

    def final_loss(params):
        def step(carry, _):
            params, state = carry
            updates, state = optimizer.update(2 * (params - 0.3), state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=5)
        return jnp.sum((params - 0.3) ** 2)

    start, shift = jnp.array([1.0, 2.0]), 1e-6 * jnp.array([1.0, -0.5])
    difference = (final_loss(start + shift) - final_loss(start - shift)) / 2
    np.testing.assert_allclose(jax.grad(final_loss)(start) @ shift, difference, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(final_loss, (start,), (shift,))[1], difference, rtol=1e-6)
