"""Projections in the norm of the round."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import optax_varynorm as vn
from tests import reference
from tests.playing import stream

MATRIX = np.array([[1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 1.0, 0.5]])
NORMAL = np.array([1.0, -2.0, 0.5, 0.0])
CENTER = np.array([0.1, 0.2, -0.3, 0.0])
DOMAINS = {
    "half_space": (vn.half_space(NORMAL, 0.7), reference.HalfSpace(NORMAL, 0.7)),
    "hyperplane": (vn.hyperplane(NORMAL, 0.7), reference.Hyperplane(NORMAL, 0.7)),
    "affine": (
        vn.affine(MATRIX, np.array([0.3, -0.2])),
        reference.Affine(MATRIX, np.array([0.3, -0.2])),
    ),
    "l2_ball": (vn.l2_ball(1.5, CENTER), reference.L2Ball(1.5, CENTER)),
}
NORMS = {
    "l2": (vn.lp_norm(lipschitz=2.0), reference.Lp(4, 2.0)),
    "full_matrix": (vn.full_matrix_norm(), reference.FullMatrix(4)),
    "full_matrix_root": (vn.full_matrix_root_norm(), reference.FullMatrixRoot(4)),
}
points = hnp.arrays(np.float64, 4, elements=st.floats(-1e3, 1e3)).map(
    lambda x: np.where(np.abs(x) < 1e-9, 0.0, x)
)
all_norms = pytest.mark.parametrize("norm", NORMS)
all_domains = pytest.mark.parametrize("domain", DOMAINS)


@functools.cache
def after_a_stream(norm, rounds=40):
    ours, theirs = NORMS[norm]
    state = ours.init(jnp.zeros(4))
    for gradient in stream("power_law", rounds, 4):
        state = ours.observe_gradient(state, jnp.asarray(gradient))
        theirs = theirs.observe(gradient)
    return ours, state, theirs


@functools.cache
def compiled_projection(norm, domain):
    norm = NORMS[norm][0]
    return jax.jit(lambda state, point: DOMAINS[domain][0].project(norm, state, point))


@all_norms
@all_domains
@given(point=points, other=points)
def test_projection_is_the_nearest_point(norm, domain, point, other):
    """Same point as the reference, and the variational inequality against any other point."""
    with jax.enable_x64(True):
        _, state, theirs = after_a_stream(norm)
        our_domain, their_domain = DOMAINS[domain]
        project = compiled_projection(norm, domain)
        projection = project(state, jnp.asarray(point))
        expected = their_domain.project(theirs, point)
        size = 1 + np.max(np.abs(point))
        np.testing.assert_allclose(projection.point, expected, atol=1e-9 * size)
        assert bool(our_domain.contains(projection.point))

        inside = np.asarray(project(state, jnp.asarray(other)).point)
        slack = projection.normal @ (inside - projection.point)
        assert slack <= 1e-8 * size**2 * (1 + np.max(np.abs(other)))


@all_norms
@all_domains
@given(point=points)
def test_residual_and_normal_belong_together(norm, domain, point):
    with jax.enable_x64(True):
        ours, state, _ = after_a_stream(norm)
        point = jnp.asarray(point)
        projected, residual, normal = compiled_projection(norm, domain)(state, point)[:3]
        size = 1 + np.max(np.abs(point))
        np.testing.assert_allclose(residual, point - projected, atol=1e-9 * size)
        np.testing.assert_allclose(normal, ours.to_dual(state, residual), atol=1e-7 * size)


@all_norms
@all_domains
@given(point=points)
def test_projection_of_a_projection_is_itself(norm, domain, point):
    with jax.enable_x64(True):
        _, state, _ = after_a_stream(norm)
        project = compiled_projection(norm, domain)
        once = project(state, jnp.asarray(point)).point
        twice = project(state, once).point
        np.testing.assert_allclose(twice, once, atol=1e-9 * (1 + np.max(np.abs(point))))


@all_norms
@pytest.mark.parametrize("domain", ["half_space", "l2_ball"])
@given(point=hnp.arrays(np.float32, 4, elements=st.floats(-0.125, 0.125, width=32)))
def test_a_point_inside_is_returned_bit_for_bit(norm, domain, point):
    ours = NORMS[norm][0]
    state = ours.init(jnp.zeros(4))
    projected, residual, normal = compiled_projection(norm, domain)(state, jnp.asarray(point))[:3]
    assert np.array_equal(projected, point)
    assert not np.any(residual)
    assert not np.any(normal)


def test_whole_space_projects_nothing():
    point = {"a": jnp.array([1.0, -2.0])}
    projection = vn.whole_space().project(vn.lp_norm(), (), point)
    assert projection.point is point
    assert bool(vn.whole_space().contains(point))


@pytest.mark.slow
def test_domains_of_trees_are_domains_of_their_leaves(x64):
    tree = {"a": jnp.array([3.0, -1.0]), "b": jnp.array([[2.0], [5.0]])}
    flat = jnp.array([3.0, -1.0, 2.0, 5.0])
    for norm in (vn.lp_norm(), vn.full_matrix_norm()):
        for of_tree, of_flat in (
            (
                vn.half_space({"a": NORMAL[:2], "b": NORMAL[2:, None]}, 0.7),
                vn.half_space(NORMAL, 0.7),
            ),
            (vn.l2_ball(1.0), vn.l2_ball(1.0)),
            (vn.affine(MATRIX, np.zeros(2)), vn.affine(MATRIX, np.zeros(2))),
        ):
            ours = of_tree.project(norm, norm.init(tree), tree).point
            expected = of_flat.project(norm, norm.init(flat), flat).point
            joined = jnp.concatenate([ours["a"], ours["b"][:, 0]])
            np.testing.assert_allclose(joined, expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_the_ball_projects_in_ill_conditioned_norms(x64, condition):
    """Scaled basis vectors as gradients give eigenvalues from 2 to 2 times the condition."""
    dimension = 20
    rng = np.random.default_rng(0)
    scales = np.geomspace(1, condition, dimension) - 1
    gradients = np.sqrt(2 * scales)[:, None] * np.linalg.qr(rng.normal(size=(20, 20)))[0]
    ours, theirs = vn.full_matrix_norm(), reference.FullMatrix(dimension)
    state = ours.init(jnp.zeros(dimension))
    for gradient in gradients:
        state = ours.observe_gradient(state, jnp.asarray(gradient))
        theirs = theirs.observe(gradient)
    for _ in range(20):
        point = rng.normal(size=dimension) * rng.choice([0.3, 1.0, 1e3])
        projected = vn.l2_ball(1.0).project(ours, state, jnp.asarray(point)).point
        expected = reference.L2Ball(1.0, np.zeros(dimension)).project(theirs, point)
        np.testing.assert_allclose(projected, expected, atol=1e-8)


def test_rounding_of_the_updates_never_reaches_the_exact_iterate():
    """The parameters follow the state's point; their rounding does not feed back into it."""
    optimizer = vn.full_matrix(domain=vn.l2_ball(1.0))
    params = jnp.zeros(5)
    state = optimizer.init(params)
    step = jax.jit(optimizer.update)
    for gradient in jnp.asarray(stream("pushing", 200, 5), jnp.float32):
        updates, state = step(gradient, state, params)
        params = optax.apply_updates(params, updates)
        exact = optax.tree.get(state, "projected")
        assert np.linalg.norm(np.asarray(exact, np.float64)) <= 1 + 1e-6
        np.testing.assert_allclose(params, exact, atol=1e-6)
