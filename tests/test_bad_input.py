"""Bad input gets an error that says what to do; bad gradients get skipped and counted."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import optax_varynorm as vn
from tests.playing import play, stream

OPTIMIZERS = {
    "fixed_norm": vn.fixed_norm(),
    "fixed_norm_1.5": vn.fixed_norm(1.5),
    "diagonal": vn.diagonal(),
    "varynorm": vn.varynorm(),
    "full_matrix": vn.full_matrix(),
    "full_matrix_of_known_length": vn.full_matrix(lipschitz=1.0),
    "full_matrix_adagrad": vn.full_matrix_adagrad(),
    "full_matrix_in_a_half_space": vn.full_matrix(domain=vn.half_space(np.ones(3), 1.0)),
    "full_matrix_adagrad_on_a_ball": vn.full_matrix_adagrad(domain=vn.l2_ball(1.0)),
}
every_optimizer = pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(make, id=name, marks=[pytest.mark.slow] if "ball" in name else [])
        for name, make in OPTIMIZERS.items()
    ],
)


def all_of(state, name):
    """Every field of this name in a state; a combination has one for each of its learners."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    found = [leaf for path, leaf in leaves if jax.tree_util.keystr(path).endswith(f".{name}")]
    assert found
    return np.array(found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vn.coin_betting(epsilon=0.0), "`epsilon` .* must be a positive number"),
        (lambda: vn.full_matrix(epsilon=-1.0), "`epsilon` .* must be a positive number"),
        (lambda: vn.full_matrix(epsilon=float("nan")), "`epsilon` .* must be a positive number"),
        (lambda: vn.coin_betting(Z=0.0), r"`Z` must lie in \(0, 1\]"),
        (lambda: vn.coin_betting(Z=1.5), r"`Z` must lie in \(0, 1\]"),
        (lambda: vn.lp_norm(1.0), "1 < p <= 2"),
        (lambda: vn.fixed_norm(p=2.5), "1 < p <= 2"),
        (lambda: vn.full_matrix(lipschitz=0.0), "`lipschitz` .* must be a positive number"),
        (lambda: vn.full_matrix(lipschitz=float("inf")), "`lipschitz` .* must be a positive"),
        (lambda: vn.full_matrix_norm(None, start="diagonal"), "'isotropic' or 'coordinate'"),
        (lambda: vn.diagonal_norm(None, root=True, start="coordinate"), "without `root`"),
        (lambda: vn.full_matrix_root_norm(None, exact_every=3), "needs a known `lipschitz`"),
        (lambda: vn.combine(), "at least one learner"),
        (lambda: vn.varynorm(domain=3.0), "must be a domain"),
        (lambda: vn.l2_ball(0.0), "`radius` .* must be a positive number"),
        (lambda: vn.l2_ball(1.0, float("nan")), "center .* must be finite"),
        (lambda: vn.box(1.0, 0.0), "`box` is empty.* Exchange or widen"),
        (lambda: vn.box(np.array([0.0, 2.0]), np.ones(2)), "`box` is empty"),
        (lambda: vn.box(np.zeros(2), np.ones(3)), "shapes"),
        (lambda: vn.box(np.nan, 1.0), "must not be NaN"),
        (lambda: vn.linf_ball(-1.0), "not negative, or the ball is empty"),
        (lambda: vn.l1_ball(-1.0), "`radius` .* must be a positive number"),
        (lambda: vn.simplex(0.0), "`scale` .* must be a positive number"),
        (lambda: vn.ellipsoid(np.eye(2), -1.0), "`radius` .* must be a positive number"),
        (lambda: vn.ellipsoid(np.diag([1.0, -1.0]), 1.0), "positive definite"),
        (lambda: vn.ellipsoid(np.ones((2, 3)), 1.0), "square matrix"),
        (lambda: vn.polyhedron(np.ones(3), np.ones(3)), r"shape \(constraints, coordinates\)"),
        (lambda: vn.polyhedron(np.array([[1.0], [-1.0]]), np.array([0.0, -1.0])), "is empty"),
        (lambda: vn.intersection(), "at least one domain"),
        (lambda: vn.intersection(vn.simplex), "takes domains such as"),
        (lambda: vn.product({"a": 1.0}), "takes domains such as"),
        (lambda: vn.half_space(np.zeros(3), 1.0), "normal .* is zero"),
        (lambda: vn.half_space(np.ones(3), np.inf), "offset .* must be finite"),
        (lambda: vn.hyperplane(np.array([1.0, np.nan]), 0.0), "normal .* must be finite"),
        (lambda: vn.affine(np.ones(3), np.ones(3)), r"shape \(constraints, coordinates\)"),
        (lambda: vn.affine(np.ones((2, 3)), np.zeros(2)), "linearly dependent"),
        (
            lambda: vn.project(vn.whole_space(), vn.ftrl_step(), surrogate="loose"),
            "'tight' or 'paper'",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@every_optimizer
def test_missing_parameters_are_asked_for(optimizer):
    state = optimizer.init(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"call `update\(gradients, state, params\)`"):
        optimizer.update(jnp.zeros(3), state)


@every_optimizer
def test_wrong_shapes_are_refused(optimizer):
    state = optimizer.init(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"gradient of shape \(2,\) .* of shape \(3,\)"):
        optimizer.update(jnp.zeros(2), state, jnp.zeros(3))
    with pytest.raises(ValueError, match=r"gradient of shape \(\)"):
        optimizer.update(jnp.zeros(()), state, jnp.zeros(3))
    with pytest.raises(ValueError, match="leaves"):
        optimizer.update({"a": jnp.zeros(3)}, state, jnp.zeros(3))


@pytest.mark.parametrize(
    "layer", [vn.ftrl_step(), vn.project(vn.l2_ball(1.0), optax.sgd(1.0))], ids=["ftrl", "project"]
)
def test_layers_ask_for_their_norm(layer):
    state = layer.init(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"Wrap it: `with_varying_norm\("):
        layer.update(jnp.zeros(3), state, jnp.zeros(3))


def test_the_tight_surrogate_asks_for_a_quadratic_norm():
    tight = vn.with_varying_norm(
        vn.lp_norm(1.5), vn.project(vn.half_space(np.ones(3), 1.0), optax.sgd(1.0))
    )
    state = tight.init(jnp.zeros(3))
    with pytest.raises(ValueError, match="surrogate='paper'"):
        tight.update(jnp.zeros(3), state, jnp.zeros(3))
    injected = optax.inject_hyperparams(vn.fixed_norm)(p=1.5, domain=vn.half_space(np.ones(3), 1.0))
    state = injected.init(jnp.zeros(3))
    with pytest.raises(ValueError, match="static_args"):
        jax.jit(injected.update)(jnp.zeros(3), state, jnp.zeros(3))


@pytest.mark.parametrize(
    "domain",
    [
        vn.half_space(np.ones(2), 1.0),
        vn.hyperplane({"a": np.ones(3)}, 1.0),
        vn.affine(np.ones((1, 2)), np.zeros(1)),
        vn.l2_ball(1.0, np.zeros(2)),
        vn.box(np.zeros(2), 1.0),
        vn.linf_ball(np.ones((3, 1))),
        vn.l1_ball(1.0, {"a": np.zeros(3)}),
        vn.ellipsoid(np.eye(2), 1.0),
        vn.polyhedron(np.eye(2), np.ones(2)),
        vn.product({"a": vn.simplex()}),
        vn.intersection(vn.non_negative(), vn.box(np.zeros(2), 1.0)),
    ],
    ids=lambda domain: domain.contains.__qualname__.split(".")[0],
)
def test_domains_of_another_shape_are_refused(domain):
    with pytest.raises(ValueError, match=r"must be shaped like|must agree"):
        vn.full_matrix(domain=domain).init(jnp.zeros(3))


def test_a_start_outside_the_domain_is_refused():
    domain = vn.l2_ball(1.0)
    with pytest.raises(ValueError, match="Start inside"):
        vn.full_matrix(domain=domain).init(2 * jnp.ones(3))
    start = domain.project(vn.lp_norm(), (), 2 * jnp.ones(3)).point
    vn.full_matrix(domain=domain).init(start)


def test_integer_parameters_are_refused():
    with pytest.raises(ValueError, match="must be floating point"):
        vn.full_matrix().init(jnp.zeros(3, jnp.int32))


def test_a_module_with_functions_in_it_is_refused_with_the_way_to_its_arrays():
    """As one of Equinox is, whose activation is a leaf."""
    module = {"weight": jnp.zeros(3), "activation": jax.nn.relu}
    arrays = {"weight": jnp.zeros(3), "activation": None}
    with pytest.raises(ValueError, match=r"\['activation'\] is .*eqx.filter\(model, eqx.is_inex"):
        vn.varynorm().init(module)
    state = vn.varynorm().init(arrays)
    with pytest.raises(ValueError, match=r"eqx.filter\(model, eqx.is_inexact_array\)"):
        vn.varynorm().update(arrays, state, module)


@every_optimizer
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_bad_gradients_are_skipped_and_counted(optimizer, bad):
    """Playing with them is playing without them."""
    good = stream("random", 40, 3).astype(np.float32)
    spoiled = good.copy()
    spoiled[::8, 1] = bad
    clean = np.where(np.arange(40)[:, None] % 8 == 0, 0, good).astype(np.float32)
    game = play(optimizer, jnp.asarray(spoiled), jnp.zeros(3))
    expected = play(optimizer, jnp.asarray(clean), jnp.zeros(3))
    assert np.all(all_of(game.final_state, "skipped_rounds") == 5)
    np.testing.assert_allclose(game.points, expected.points, atol=1e-6)
    for leaf in jax.tree.leaves(game.states):
        assert np.all(np.isfinite(leaf))


@every_optimizer
def test_gradients_beyond_the_promise_are_clipped_and_counted(optimizer):
    gradients = stream("random", 30, 3).astype(np.float32)
    gradients[10] *= 1e6
    game = play(optimizer, jnp.asarray(gradients), jnp.zeros(3))
    assert np.all(all_of(game.final_state, "clipped_rounds") >= 1)
    assert np.all(all_of(game.final_state, "squared_dual_norm_sum") <= 30 * (1 + 1e-3))
    assert np.all(all_of(game.final_state, "coins_out_of_range") == 0)
    for leaf in jax.tree.leaves(game.states):
        assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize(
    ("norm", "matrix"),
    [
        (vn.full_matrix_norm(), lambda g: 2 * np.eye(3) + np.outer(g, g)),
        (
            vn.full_matrix_root_norm(exact_every=1),
            lambda g: np.eye(3) + (np.sqrt(1 + g @ g) - 1) * np.outer(g, g) / (g @ g),
        ),
    ],
    ids=["full_matrix", "full_matrix_root"],
)
def test_a_long_gradient_reaches_the_norm_as_it_is_and_the_learner_at_length_one(x64, norm, matrix):
    gradient = np.array([30.0, 0.0, -40.0])
    optimizer = vn.with_varying_norm(norm, vn.ftrl_step())
    final = play(optimizer, jnp.asarray(gradient[None]), jnp.zeros(3)).final_state
    state = jax.tree.map(jnp.asarray, final.norm_state)
    ours = np.stack([norm.to_dual(state, axis) for axis in jnp.eye(3)])
    np.testing.assert_allclose(ours, matrix(gradient), rtol=1e-9, atol=1e-9)
    length = vn.dual_norm(norm, norm.init(jnp.zeros(3)), jnp.asarray(gradient))
    np.testing.assert_allclose(final.learner_state.gradient_sum, gradient / length, rtol=1e-12)
    np.testing.assert_allclose(final.learner_state.squared_dual_norm_sum, 1.0, rtol=1e-12)


# Anything a float32 can be, mostly ordinary.
wild = st.one_of(
    st.floats(width=32), st.floats(-1, 1, width=32), st.sampled_from([0.0, 1e18, 1e-30])
)


@every_optimizer
@given(gradients=hnp.arrays(np.float32, (32, 3), elements=wild))
def test_no_stream_of_floats_breaks_the_state(optimizer, gradients):
    game = play(optimizer, jnp.asarray(gradients), jnp.zeros(3))
    for leaf in jax.tree.leaves(game):
        assert np.all(np.isfinite(leaf))


@every_optimizer
def test_a_hundred_thousand_equal_gradients_saturate(optimizer):
    """float32, no domain or an unbounded one: everything stays finite."""
    gradient = jnp.array([0.6, 0.0, -0.8])

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    carry = (jnp.zeros(3), optimizer.init(jnp.zeros(3)))
    (params, state), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=100_000))(carry)
    for leaf in jax.tree.leaves((params, state)):
        assert np.all(np.isfinite(leaf))
    assert np.max(all_of(state, "log_wealth")) <= np.log(np.finfo(np.float32).max) / 2 + 1e-3


@every_optimizer
@pytest.mark.parametrize("decades", [6, 13])
def test_gradients_of_all_sizes_leave_every_state_finite(optimizer, decades):
    """Far longer than promised, again and again: rounding eats whole directions of a matrix."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(50, 200, 3))
    gradients *= 10 ** rng.uniform(0, decades, size=(50, 200, 1))

    def run(gradients):
        def step(carry, gradient):
            params, state = carry
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (jnp.zeros(3), optimizer.init(jnp.zeros(3))), gradients)[0]

    for leaf in jax.tree.leaves(jax.jit(jax.vmap(run))(jnp.asarray(gradients, jnp.float32))):
        assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize("length", [4321.0, 5212.303075768942, 1e5, 1e6])
def test_a_direction_rounded_away_does_not_come_back(length):
    """One dimension, one repeated gradient: P - r u^2 is a difference of nearly equal numbers."""
    game = play(vn.full_matrix(lipschitz=1.0), jnp.full((50, 1), length), jnp.zeros(1))
    assert np.all(np.abs(game.points) <= 1)
    assert np.all(optax.tree.get(game.states, "diagonal") >= 0)


@pytest.mark.parametrize("number", [1e-13, 1e13])
def test_units_that_float32_cannot_work_in_are_refused(number):
    for make in (vn.fixed_norm, vn.diagonal, vn.full_matrix, vn.full_matrix_adagrad):
        with pytest.raises(ValueError, match="other units"):
            make(lipschitz=number)
        with pytest.raises(ValueError, match="other units"):
            make(epsilon=number)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [vn.fixed_norm, vn.full_matrix, vn.full_matrix_adagrad])
@pytest.mark.parametrize("lipschitz", [1e-12, 1e12])
def test_units_at_the_limit_work(optimizer, lipschitz):
    """Points scale as 1 / L; the ball is projected on from as far away as that."""
    gradients = lipschitz * stream("pushing", 30, 3).astype(np.float32)
    unit = play(optimizer(lipschitz=1.0), jnp.asarray(gradients / lipschitz), jnp.zeros(3)).points
    game = play(optimizer(lipschitz=lipschitz), jnp.asarray(gradients), jnp.zeros(3))
    np.testing.assert_allclose(game.points * lipschitz, unit, rtol=1e-3, atol=1e-5)
    ball = optimizer(epsilon=1e12, lipschitz=lipschitz, domain=vn.l2_ball(1.0))
    assert np.all(np.isfinite(play(ball, jnp.asarray(gradients), jnp.zeros(3)).points))


def test_trees_without_equality_are_trees():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(eq=False)
    class Model:
        weights: jax.Array

    domain = vn.half_space(Model(jnp.ones(2)), 1.0)
    vn.fixed_norm(domain=domain).init(Model(jnp.zeros(2)))
    with pytest.raises(ValueError, match="shaped like"):
        vn.fixed_norm(domain=domain).init(Model(jnp.zeros(3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: vn.full_matrix(lipschitz="1"),
        lambda: vn.full_matrix(epsilon=None),
        lambda: vn.full_matrix(lipschitz=np.ones(3)),
        lambda: vn.l2_ball(np.ones(2)),
        lambda: vn.full_matrix(domain=vn.l2_ball),
    ],
)
def test_things_that_are_no_numbers_or_domains_are_refused(call):
    with pytest.raises(ValueError, match="must be"):
        call()


def test_float16_parameters_saturate_instead_of_overflowing():
    optimizer = vn.fixed_norm()
    params = jnp.zeros(2, jnp.float16)
    state = optimizer.init(params)
    step = jax.jit(optimizer.update)
    for _ in range(120):
        updates, state = step(jnp.array([-1.0, 0.0], jnp.float16), state, params)
        params = optax.apply_updates(params, updates)
        assert np.all(np.isfinite(params))
    assert params[0] == np.finfo(np.float16).max
