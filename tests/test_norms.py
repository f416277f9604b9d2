"""What a varying norm promises: duality, growth, strong convexity."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import optax_varynorm as vn
from tests import reference
from tests.playing import KINDS, stream

NORMS = {
    "l2": vn.lp_norm(),
    "l1.5": vn.lp_norm(1.5),
    "l1.1": vn.lp_norm(1.1, lipschitz=3.0),
    "diagonal": vn.diagonal_norm(),
    "diagonal_root_3": vn.diagonal_norm(3.0, root=True),
    "full_matrix": vn.full_matrix_norm(),
    "full_matrix_3": vn.full_matrix_norm(3.0),
    "full_matrix_root": vn.full_matrix_root_norm(),
    "full_matrix_root_3": vn.full_matrix_root_norm(3.0),
    "group": vn.group_norm(1.3, groups="rows"),
    "block_diagonal": vn.block_diagonal_norm(largest_block=3),
    "sum": vn.sum_of_norms(vn.lp_norm(1.2), vn.full_matrix_norm(2**-0.5)),
}
NORMS = {
    name: norm._replace(
        measure=jax.jit(norm.measure),
        grow=jax.jit(norm.grow),
        to_dual=jax.jit(norm.to_dual),
        to_primal=jax.jit(norm.to_primal),
    )
    for name, norm in NORMS.items()
}
# XLA flushes what is nearly subnormal to zero; that is no business of a norm.
vectors = hnp.arrays(np.float64, 4, elements=st.floats(-1e3, 1e3)).map(
    lambda x: np.where(np.abs(x) < 1e-9, 0.0, x)
)
all_norms = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)


def states(norm, gradients):
    """The states of ``||.||_0`` to ``||.||_T``."""
    state = norm.init(jnp.zeros(gradients.shape[1], gradients.dtype))
    result = [state]
    for gradient in gradients:
        state = norm.observe_gradient(state, jnp.asarray(gradient))
        result.append(state)
    return result


@functools.cache
def late_state(norm, dtype=jnp.float64):
    gradients = jnp.asarray(stream("power_law", 12, 4), dtype)
    return states(norm, gradients)[-1]


@all_norms
@given(point=vectors)
def test_duality_maps_invert_each_other(norm, point):
    with jax.enable_x64(True):
        state = late_state(norm)
        there = norm.to_dual(state, jnp.asarray(point))
        back = norm.to_primal(state, there)
        # (p - 1)-th powers lose what underflows; the rest comes back.
        np.testing.assert_allclose(back, point, rtol=1e-6, atol=1e-9 * np.max(np.abs(point)))
        np.testing.assert_allclose(
            vn.primal_norm(norm, state, jnp.asarray(point)),
            vn.dual_norm(norm, state, there),
            rtol=1e-9,
        )


@all_norms
@given(point=vectors, gradient=vectors)
def test_no_pairing_exceeds_the_product_of_norms(norm, point, gradient):
    with jax.enable_x64(True):
        state = late_state(norm)
        x, g = jnp.asarray(point), jnp.asarray(gradient)
        limit = vn.primal_norm(norm, state, x) * vn.dual_norm(norm, state, g)
        assert abs(point @ gradient) <= limit * (1 + 1e-9) + 1e-9
        aligned = norm.to_primal(state, g)
        np.testing.assert_allclose(
            gradient @ np.asarray(aligned),
            vn.primal_norm(norm, state, aligned) * vn.dual_norm(norm, state, g),
            rtol=1e-9,
        )


@all_norms
@given(x=vectors, y=vectors, p=st.floats(0, 1))
def test_half_the_square_is_strongly_convex(norm, x, y, p):
    with jax.enable_x64(True):
        state = late_state(norm)

        def squared(z):
            return float(vn.primal_norm(norm, state, jnp.asarray(z))) ** 2

        middle = squared(p * x + (1 - p) * y)
        chord = p * squared(x) + (1 - p) * squared(y)
        gap = norm.strong_convexity * p * (1 - p) * squared(x - y)
        assert middle <= chord - gap + 1e-9 * (1 + chord)


@all_norms
@pytest.mark.parametrize("kind", KINDS)
def test_norms_never_decrease(x64, norm, kind):
    history = states(norm, stream(kind, 12, 4))
    points = jnp.asarray(np.random.default_rng(0).normal(size=(20, 4)))
    for point in points:
        lengths = np.array([vn.primal_norm(norm, state, point) for state in history])
        assert np.all(np.diff(lengths) >= -1e-9)


@all_norms
def test_a_zero_gradient_changes_nothing(norm):
    state = late_state(norm, jnp.float32)
    after = norm.observe_gradient(state, jnp.zeros(4))
    for duality_map in (norm.to_dual, norm.to_primal):
        for axis in jnp.eye(4):
            old, new = duality_map(state, axis), duality_map(after, axis)
            np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


@all_norms
def test_the_inverse_is_that_of_the_matrix(x64, norm):
    if not norm.is_quadratic:
        return
    state = late_state(norm)
    found = norm.inverse(state)
    if isinstance(found, vn.InverseMatrix):
        np.testing.assert_allclose(found.diagonal, np.diagonal(found.block(None)), rtol=1e-9)
        found = found.block(None)
    else:
        found = jnp.diag(jnp.broadcast_to(found, 4))
    matrix = np.stack([norm.to_dual(state, axis) for axis in jnp.eye(4)])
    np.testing.assert_allclose(np.linalg.inv(found), matrix, rtol=1e-9, atol=1e-9)


@all_norms
def test_a_gradient_is_measured_by_its_dual_norm(norm):
    """Not finite ones, and those whose squares are not, are zeros to it."""
    with jax.enable_x64(True):
        state = late_state(norm)
        gradient = jnp.array([0.5, -3.0, 0.0, 1e-3])
        reading = norm.measure(state, gradient)
        np.testing.assert_array_equal(reading.gradient, gradient)
        np.testing.assert_array_equal(reading.known, gradient)
        assert bool(reading.usable)
        length = vn.dual_norm(norm, state, gradient)
        np.testing.assert_allclose(jnp.sqrt(reading.squared_dual_norm), length, rtol=1e-9)
        for entry in (np.nan, np.inf, 1e200):
            reading = norm.measure(state, gradient.at[1].set(entry))
            assert not bool(reading.usable)
            assert reading.squared_dual_norm == 0
            np.testing.assert_array_equal(reading.gradient, 0)
            np.testing.assert_array_equal(reading.known, 0)


def test_matrix_norms_match_the_reference(x64):
    gradients = stream("power_law", 50, 6)
    x = jnp.asarray(np.random.default_rng(1).normal(size=6))
    for norm, theirs in (
        (vn.full_matrix_norm(2.0), reference.FullMatrix(6, 2.0)),
        (vn.full_matrix_root_norm(2.0), reference.FullMatrixRoot(6, 2.0)),
    ):
        state = states(norm, gradients)[-1]
        for gradient in gradients:
            theirs = theirs.observe(gradient)
        np.testing.assert_allclose(vn.primal_norm(norm, state, x), theirs.norm(x), rtol=1e-10)
        np.testing.assert_allclose(vn.dual_norm(norm, state, x), theirs.dual_norm(x), rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e14])
@all_norms
def test_extreme_gradients_leave_float32_states_finite(norm, scale):
    state = late_state(norm, jnp.float32)
    for gradient in scale * stream("random", 20, 4):
        state = norm.observe_gradient(state, jnp.asarray(gradient, jnp.float32))
        primal = norm.to_primal(state, jnp.ones(4))
        assert np.all(np.isfinite(primal))
        assert np.all([np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state)])


def test_lp_norm_of_traced_p_is_that_of_known_p():
    x = jnp.array([1.0, -2.0, 0.0])
    for p in (2.0, 1.4):
        traced = jax.jit(lambda p: vn.lp_norm(p).to_primal((), x))(jnp.float32(p))
        np.testing.assert_allclose(traced, vn.lp_norm(p).to_primal((), x), rtol=1e-5)


@pytest.mark.parametrize(
    "norm",
    [
        vn.full_matrix_norm(3.0),
        vn.full_matrix_norm(None),
        vn.full_matrix_norm(None, start="coordinate"),
        vn.full_matrix_root_norm(),
        vn.full_matrix_root_norm(exact_every=2),
        vn.scaled_norm(vn.full_matrix_norm(), 2.0),
    ],
    ids=["full", "learned", "coordinate", "root", "exact root", "scaled"],
)
def test_entries_of_the_inverse_are_those_of_the_duality_map(x64, norm):
    *_, state = states(norm, stream("drifting", 30, 5))
    columns = jax.vmap(lambda unit: norm.to_primal(state, unit))(jnp.eye(5))
    inverse = norm.inverse(state)
    np.testing.assert_allclose(inverse.block(None), columns, rtol=0, atol=1e-13)
    np.testing.assert_allclose(inverse.diagonal, np.diagonal(columns), rtol=1e-7)
    chosen = jnp.array([3, 0, 3])
    np.testing.assert_allclose(inverse.block(chosen), columns[chosen][:, chosen], atol=1e-13)
