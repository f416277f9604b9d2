"""No projection is wrong without saying so: ten thousand instances a domain, by what bounds errors.

The bound shares no code with the solvers. Let ``w`` be in ``W`` and ``n`` a normal of ``W`` there.
Then ``w`` is the projection of ``w + A^{-1} n``, and projections bring points no further apart: the
distance to that of ``v`` is at most ``||v - w - A^{-1} n||_A``. For ``n`` a true normal near that
of the solver is taken.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import threadpoolctl
from jax.flatten_util import ravel_pytree

from optax_varynorm.domains import active_set
from tests import projecting
from tests.projecting import PROBLEMS, matrix_norm, parted

DIMENSION = 12
INSTANCES = 10_000


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threadpoolctl.threadpool_limits(1):
        yield


@functools.cache
def instances(most_condition=1e6):
    """Inverse matrices with condition numbers up to this, and points near and far."""
    rng = np.random.default_rng(0)
    n, d = INSTANCES, DIMENSION
    condition = most_condition ** rng.random((n, 1))
    basis = np.linalg.qr(rng.normal(size=(n, d, d)))[0]
    # A third each: by a power law, with few large eigenvalues, and in nearly its own axes.
    spread = condition ** np.linspace(0, 1, d)
    few = np.where(np.arange(d) < d // 4, condition, 1.0)
    kind = np.arange(n) % 3
    eigenvalues = np.where((kind == 1)[:, None], few, spread)
    tilted = np.linalg.qr(np.eye(d) + 0.1 * basis)[0]
    axes = np.where((kind == 2)[:, None, None], tilted, basis)
    inverses = np.einsum("nij,nj,nkj->nik", axes, 1 / eigenvalues, axes)
    inverses = ((inverses + np.swapaxes(inverses, 1, 2)) / 2).astype(np.float32)
    points = 10 ** rng.uniform(-1, 1.5, size=(n, 1)) * rng.normal(size=(n, d))
    return inverses.astype(np.float64), points.astype(np.float32).astype(np.float64)


def project_all(name, dtype, multipliers=None):
    """The projections of all instances, from given multipliers or none, as float64 arrays."""
    domain, _ = projecting.problem(name, DIMENSION, np.random.default_rng(0))

    @jax.jit
    @jax.vmap
    def run(inverse, point, start):
        start = () if start is None else (start,)
        found = domain.project(matrix_norm, inverse, parted(name, point), *start)
        flat = (ravel_pytree(tree)[0] for tree in (found.point, found.normal))
        return (*flat, found.error, found.multipliers)

    data = [jnp.asarray(part, dtype) for part in instances()]
    start = None if multipliers is None else jnp.asarray(multipliers, dtype)
    points, normals, errors, multipliers = run(*data, start)
    arrays = (points, normals, errors)
    return (*(np.asarray(array, np.float64) for array in arrays), multipliers)


def on_face(name, points, normals, multipliers):
    """Each point moved by rounding at most onto the face it is nearly on, and a true normal there.

    Near the given normals, in NumPy.
    """
    rng = np.random.default_rng(0)
    d, near = DIMENSION, NEAR * scale_of(points)[:, None]
    center = 0.2 * rng.normal(size=d)
    match name:
        case "box":
            lower = -rng.uniform(0.1, 1, size=d)
            upper = np.where(rng.random(d) < 0.2, np.inf, rng.uniform(0.1, 1, size=d))
            return bounded(points, normals, lower, upper)
        case "non_negative":
            return bounded(points, normals, 0.0, np.inf)
        case "linf_ball":
            return bounded(points, normals, center - 0.5, center + 0.5)
        case "simplex":
            return on_simplex(points, normals, near)
        case "l1_ball":
            return on_l1_ball(points, normals, center)
        case "from_euclidean":
            return on_l1_ball(points, normals, 0.0)
        case "l2_ball":
            return points, along(points - center, normals)
        case "ellipsoid":
            shape = projecting.matrix("random", d, rng) / d
            return points, along((points - center) @ shape, normals)
        case "product":
            half = d // 2
            first, first_normals = on_simplex(points[:, :half], normals[:, :half], near)
            rest_normals = along(points[:, half:], normals[:, half:])
            on_border = np.linalg.norm(points[:, half:], axis=1) >= 0.5 - near[:, 0]
            rest_normals = np.where(on_border[:, None], rest_normals, 0)
            moved = np.hstack([first, points[:, half:]])
            return moved, np.hstack([first_normals, rest_normals])
        case "polyhedron":
            rows = rng.normal(size=(min(2 * d, 60), d))
            lengths = np.linalg.norm(rows, axis=1)
            excess = (points @ rows.T - 1) / (lengths * scale_of(points)[:, None])
            tight = np.where(np.abs(excess) <= NEAR, np.maximum(multipliers, 0), 0)
            inside = np.all(excess <= NEAR, axis=1, keepdims=True)
            return np.where(inside, points, np.nan), tight @ (rows / lengths[:, None])
    raise ValueError(name)


# What counts as on a face, in units of the instance: its share of an error of 1e-6.
NEAR = 2e-7


def bounded(points, normals, lower, upper):
    assert np.all((points >= lower) & (points <= upper))
    near = NEAR * scale_of(points)[:, None]
    low, high = points <= lower + near, points >= upper - near
    normals = np.where(low, np.minimum(normals, 0), 0) + np.where(high, np.maximum(normals, 0), 0)
    return np.where(low, lower, np.where(high, upper, points)), normals


def on_simplex(points, normals, near):
    assert np.all(points >= 0)
    positive = points > near
    level = np.sum(normals * positive, axis=1, keepdims=True) / np.sum(positive, 1, keepdims=True)
    return np.where(positive, points, 0), np.where(positive, level, np.minimum(normals, level))


def on_l1_ball(points, normals, center):
    near = NEAR * scale_of(points)[:, None]
    arrows = np.where(np.abs(points - center) <= near, 0, points - center)
    signs = np.sign(arrows)
    count = np.maximum(np.sum(signs != 0, axis=1, keepdims=True), 1)
    level = np.maximum(np.sum(normals * signs, axis=1, keepdims=True) / count, 0)
    normals = np.where(signs != 0, level * signs, np.clip(normals, -level, level))
    return center + arrows, normals


def along(directions, normals):
    squares = np.sum(directions**2, axis=1, keepdims=True)
    share = np.sum(normals * directions, axis=1, keepdims=True) / squares
    return np.maximum(share, 0) * directions


def distances(name, points, normals, multipliers):
    """An upper bound of each point's distance to the projection, relative to the lengths."""
    inverses, targets = instances()
    moved, normals = on_face(name, points, normals, multipliers)
    missed = targets - moved - np.einsum("nij,nj->ni", inverses, normals)
    squares = np.einsum("ni,ni->n", missed, np.linalg.solve(inverses, missed[:, :, None])[:, :, 0])
    # The norm's matrix has no eigenvalue below one.
    bound = np.sqrt(np.maximum(squares, 0)) + np.linalg.norm(moved - points, axis=1)
    # A point that is nobody's projection, such as one inside that was returned as it is.
    stayed = np.all(points == targets, axis=1)
    return np.where(stayed, 0, bound) / scale_of(points)


def scale_of(points):
    return np.maximum(np.linalg.norm(points, axis=1), np.linalg.norm(instances()[1], axis=1))


# No simple normals; or, of products with a ball, none that are known to more than eight digits.
NOT_SIMPLE = ("affine", "half_space", "hyperplane", "intersection", "product")
SIMPLE = [name for name in PROBLEMS if name not in NOT_SIMPLE]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_no_projection_is_wrong_unless_it_says_so(name):
    """From nothing; from the multipliers of another instance, which are of no use; in float32."""
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["box", "simplex"])
def test_no_projection_of_large_matrices_is_wrong_unless_it_says_so(name, monkeypatch):
    """As if these were large, their factors' rows gathered from what the norm keeps."""
    monkeypatch.setattr(active_set, "LARGEST_WHOLE", 0)
    check(name)


def check(name):
    with jax.enable_x64(True):
        cold = project_all(name, jnp.float64)
    if name in SIMPLE:
        with jax.enable_x64(True):
            warm = project_all(name, jnp.float64, np.roll(cold[3], 3, axis=0))
        for points, normals, errors, multipliers in (cold, warm):
            wrong = ~(distances(name, points, normals, np.asarray(multipliers)) <= 1e-6)
            assert np.sum(wrong & (errors <= 1e-6)) == 0
            assert np.mean(wrong) <= 1e-3

    exact, _, exact_errors, _ = cold
    points, _, errors, _ = project_all(name, jnp.float32)
    wrong = ~(np.linalg.norm(points - exact, axis=1) <= 1e-3 * scale_of(exact))
    wrong &= exact_errors <= 1e-6
    assert np.sum(wrong) == 0
    assert np.mean(errors > 1e-3) <= 1e-3
