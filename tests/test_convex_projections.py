"""Every domain projects in every norm: against CVXPY with Clarabel, and by what defines it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

import optax_varynorm as vn
from tests import projecting
from tests.projecting import MATRICES, PROBLEMS, ROUND, matrix_norm, parted


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """OpenBLAS threads that wait for a busy core make small factorizations 20 times slower."""
    with threadpoolctl.threadpool_limits(1):
        yield


@functools.cache
def compiled(name, dimension):
    domain, constraints = projecting.problem(name, dimension, np.random.default_rng(0))

    @jax.jit
    def run(inverse, flat):
        return domain.project(matrix_norm, inverse, parted(name, flat))

    return domain, constraints, run


def instance(kind, size, dimension, seed):
    """An inverse matrix and a point that float32 represents exactly."""
    rng = np.random.default_rng(seed)
    inverse = np.linalg.inv(projecting.matrix(kind, dimension, rng))
    inverse = ((inverse + inverse.T) / 2).astype(np.float32).astype(np.float64)
    return inverse, (size * rng.normal(size=dimension)).astype(np.float32).astype(np.float64)


def check_against_clarabel(name, dimension, kind, size):
    """1e-6 in float64 and 1e-3 in float32, at a condition number of a million."""
    _, constraints, run = compiled(name, dimension)
    inverse, point = instance(kind, size, dimension, 1)
    forms = (True, False) if name in ROUND else (True,)
    expected = projecting.exact_projection(constraints, inverse, point, forms)
    with jax.enable_x64(True):
        ours = run(jnp.asarray(inverse), jnp.asarray(point))
        got = np.asarray(ravel_pytree(ours.point)[0])
    scale = np.linalg.norm(expected)
    assert np.linalg.norm(got - expected) <= (3e-5 if name in ROUND else 1e-6) * scale
    assert float(ours.error) <= 1e-6
    # Nothing shorter exists, to more digits than Clarabel's point has.
    lengths = [np.sqrt(r @ np.linalg.solve(inverse, r)) for r in (point - got, point - expected)]
    assert lengths[0] <= lengths[1] * (1 + 1e-8) + 1e-8

    ours = run(jnp.asarray(inverse, jnp.float32), jnp.asarray(point, jnp.float32))
    narrow = ravel_pytree(ours.point)[0]
    assert narrow.dtype == jnp.float32
    scale = max(np.linalg.norm(point), np.linalg.norm(expected))
    assert np.linalg.norm(np.asarray(narrow, np.float64) - expected) <= 1e-3 * scale
    assert float(ours.error) <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_projections_agree_with_clarabel(name, kind):
    for size in (0.3, 1.0, 30.0):
        check_against_clarabel(name, 20, kind, size)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_projections_agree_with_clarabel_in_128_dimensions(name):
    for kind in ("ill_conditioned", "low_rank"):
        check_against_clarabel(name, 128, kind, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "p"),
    [(name, (1.1, 1.5)[i % 2]) for i, name in enumerate(PROBLEMS) if name != "product"],
)
def test_projections_in_lp_norms_agree_with_clarabel(x64, name, p):
    import cvxpy as cp

    domain, constraints = projecting.problem(name, 10, np.random.default_rng(0))
    norm = vn.lp_norm(p)
    run = jax.jit(lambda point: domain.project(norm, (), point))
    for size in (0.3, 1.0, 30.0):
        point = size * np.random.default_rng(2).normal(size=10)
        ours = run(jnp.asarray(point))
        w = cp.Variable(10)
        program = cp.Problem(cp.Minimize(cp.pnorm(w - point, p)), constraints(w))
        # On some processors Clarabel does not reach a tolerance of 1e-9 here.
        accuracy = projecting.solve(program, (1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8))
        assert accuracy <= 1e-8
        scale = max(1.0, np.linalg.norm(w.value))
        assert np.linalg.norm(ours.point - w.value) <= 3e-5 * scale
        assert float(vn.primal_norm(norm, (), ours.residual)) <= program.value * (1 + 1e-9) + 1e-9
        assert float(ours.error) <= 1e-6
        np.testing.assert_allclose(ours.point + ours.residual, point, atol=1e-8 * (1 + size))


SMALL = 5
# Compiling takes most of the time; these share the code of the others.
SLOW = (
    "from_euclidean",
    "product",
    "intersection",
    "linf_ball",
    "non_negative",
    "ellipsoid",
    "affine",
)


def some_slow(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]


seeds = st.integers(0, 10**6)


@pytest.mark.parametrize("name", some_slow(PROBLEMS))
@settings(max_examples=30)
@given(seed=seeds, kind=st.sampled_from(MATRICES), size=st.sampled_from([0.01, 1.0, 100.0]))
def test_projections_are_what_defines_them(name, seed, kind, size):
    """In the domain, its own projection, and no point of the domain on the far side of it."""
    with jax.enable_x64(True):
        domain, _, run = compiled(name, SMALL)
        inverse, point = instance(kind, size, SMALL, seed)
        inverse = jnp.asarray(inverse)
        ours = run(inverse, jnp.asarray(point))
        assert bool(domain.contains(ours.point))
        assert float(ours.error) <= 1e-6
        flat, residual, normal = (np.asarray(ravel_pytree(tree)[0]) for tree in ours[:3])
        np.testing.assert_allclose(flat + residual, point, atol=1e-7 * (1 + size))
        np.testing.assert_allclose(inverse @ normal, residual, atol=1e-9 * (1 + size))

        again = run(inverse, jnp.asarray(flat))
        np.testing.assert_allclose(
            ravel_pytree(again.point)[0], flat, rtol=0, atol=1e-8 * (1 + np.max(np.abs(flat)))
        )
        for other in np.random.default_rng(seed).normal(size=(3, SMALL)):
            inside = np.asarray(ravel_pytree(run(inverse, jnp.asarray(2 * other)).point)[0])
            slack = normal @ (inside - flat)
            longest = np.linalg.norm(normal) * (1 + np.linalg.norm(inside - flat) + size)
            assert slack <= 1e-7 * longest


@pytest.mark.parametrize(
    "name", some_slow([n for n in PROBLEMS if n not in ("hyperplane", "affine", "half_space")])
)
@settings(max_examples=20)
@given(seed=seeds)
def test_a_point_inside_is_returned_bit_for_bit(name, seed):
    with jax.enable_x64(True):
        _, _, run = compiled(name, SMALL)
        inverse, point = instance("random", 1.0, SMALL, seed)
        inverse = jnp.asarray(inverse)
        inside = ravel_pytree(run(inverse, jnp.asarray(point)).point)[0]
        if name not in ("simplex", "intersection", "product"):
            # Well inside: half way to the projection of the origin.
            center = ravel_pytree(run(inverse, jnp.zeros(SMALL)).point)[0]
            inside = 0.5 * inside + 0.5 * center
        again = run(inverse, inside)
        if name in ("intersection", "product") and np.any(again.error):
            return  # the border of a round set, which rounding crosses
        assert np.array_equal(ravel_pytree(again.point)[0], inside)
        assert not np.any(ravel_pytree(again.residual)[0])
        assert not np.any(ravel_pytree(again.normal)[0])
        assert again.error == 0


SEPARABLE = ("box", "non_negative", "linf_ball", "simplex", "l1_ball", "l2_ball", "product")


@pytest.mark.parametrize("name", some_slow(SEPARABLE))
@settings(max_examples=20)
@given(seed=seeds, size=st.sampled_from([0.1, 1.0, 1e6]))
def test_diagonal_norms_project_like_their_matrices(name, seed, size):
    """The O(d) and O(d log d) forms and the general solver find the same point."""
    with jax.enable_x64(True):
        _, _, run = compiled(name, SMALL)
        rng = np.random.default_rng(seed)
        squares, point = 100 * rng.random(SMALL) ** 4, size * rng.normal(size=SMALL)
        fast = compiled_diagonal(name)(jnp.asarray(squares), jnp.asarray(point))
        slow = run(jnp.diag(1 / jnp.asarray(2 + squares)), jnp.asarray(point))
        for ours, expected in zip(fast[:3], slow[:3], strict=True):
            ours, expected = ravel_pytree(ours)[0], ravel_pytree(expected)[0]
            scale = 1 + np.max(np.abs(expected))
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-8 * scale * (1 + size))
        assert float(fast.error) <= 1e-8


@functools.cache
def compiled_diagonal(name):
    domain = compiled(name, SMALL)[0]
    norm = vn.diagonal_norm()

    def project(squares, point):
        point = parted(name, point)
        inverse = jax.tree.map(lambda square: 1 / (2 + square), parted(name, squares))
        state = norm.init(point)._replace(inverse=inverse)
        return domain.project(norm, state, point)

    return jax.jit(project)


def test_separable_domains_in_a_diagonal_norm_need_no_matrix():
    """Anything of size d^2 would take 40 gigabytes."""
    d = 10**5
    norm = vn.diagonal_norm()
    point = jnp.linspace(-1.0, 1.0, d)
    for domain in (vn.box(-0.5, 0.5), vn.simplex()):
        projection = jax.jit(domain.project, static_argnums=0)(norm, norm.init(point), point)
        assert bool(domain.contains(projection.point))


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=seeds)
def test_support_functions_are_reached(seed):
    """No point of the domain exceeds the support, and the projection of a far point attains it."""
    rng = np.random.default_rng(seed)
    gradient, far = rng.normal(size=SMALL), 1e7
    with jax.enable_x64(True):
        for name in ("linf_ball", "simplex", "l1_ball", "l2_ball", "ellipsoid", "product"):
            domain, _, run = compiled(name, SMALL)
            value = float(domain.support(parted(name, jnp.asarray(gradient))))
            attained = ravel_pytree(run(jnp.eye(SMALL), jnp.asarray(far * gradient)).point)[0]
            inside = ravel_pytree(run(jnp.eye(SMALL), jnp.asarray(rng.normal(size=SMALL))).point)[0]
            assert gradient @ inside <= value + 1e-9
            assert value == pytest.approx(float(gradient @ attained), rel=1e-5, abs=1e-5)


def test_supports_of_unbounded_sets_are_infinite_or_upper_bounds(x64):
    g = jnp.array([1.0, -2.0, 0.0])
    assert vn.box(jnp.array([-1.0, -3.0, -jnp.inf]), jnp.array([2.0, 5.0, jnp.inf])).support(g) == 8
    assert vn.non_negative().support(-jnp.abs(g)) == 0
    assert vn.non_negative().support(g) == np.inf
    assert vn.polyhedron(np.eye(3), np.ones(3)).support(g) == np.inf
    assert vn.intersection(vn.l1_ball(2.0), vn.l2_ball(1.0)).support(g) == pytest.approx(5**0.5)
    with pytest.raises(ValueError, match="support=lambda gradient"):
        vn.from_euclidean(lambda w: w).support(g)
    assert vn.from_euclidean(lambda w: w, support=jnp.sum).support(g) == -1
