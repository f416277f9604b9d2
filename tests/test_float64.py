"""Float64 in the middle of a float32 program, whatever is done to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optax_varynorm._float64 import in_float64

# Sums of these are lost in float32.
LARGE = np.array([1e9, 1.0, -1e9])


def careful(matrix, vector):
    """A solution, and operations that JAX traces only when it compiles them."""

    @in_float64
    def solve(matrix, vector):
        assert matrix.dtype == jnp.float32
        matrix, vector = matrix.astype(jnp.float64), vector.astype(jnp.float64)
        x = jnp.linalg.solve(matrix, vector)
        x, _ = jax.lax.while_loop(
            lambda carry: carry[1] < 2,
            lambda carry: (carry[0] + jnp.linalg.solve(matrix, vector - matrix @ carry[0]), 2),
            (x, 0),
        )
        offset = jnp.sum(jnp.asarray(LARGE)) - 1
        other = jnp.argmin(x).astype(x.dtype) + jnp.cumsum(jnp.sort(x))[-1]
        return (x + offset).astype(jnp.float32), other.astype(jnp.float32)

    def run():
        return solve(matrix, vector)

    return jax.lax.cond(vector[0] < 1e9, run, lambda: (vector, vector[0]))[0]


@pytest.fixture
def system():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    matrix = ((basis * np.geomspace(1, 1e6, 4)) @ basis.T).astype(np.float32)
    vector = rng.normal(size=4).astype(np.float32)
    return matrix, vector, np.linalg.solve(matrix.astype(float), vector.astype(float))


def test_it_has_more_digits_than_float32(system):
    matrix, vector, exact = system
    for run in (careful, jax.jit(careful)):
        result = run(jnp.asarray(matrix), jnp.asarray(vector))
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, exact, rtol=3e-7)
    float32 = jnp.linalg.solve(jnp.asarray(matrix), jnp.asarray(vector))
    assert np.max(np.abs(float32 / exact - 1)) > 1e-5
    assert not jax.config.jax_enable_x64


def test_it_is_batched_over_each_argument(system):
    matrix, vector, exact = system
    several = np.array([1, 2, 4], np.float32)
    vectors = jnp.asarray(several[:, None] * vector[None, :])
    solved = jax.jit(jax.vmap(careful, (None, 0)))(jnp.asarray(matrix), vectors)
    np.testing.assert_allclose(solved, several[:, None] * exact[None, :], rtol=3e-7)
    matrices = jnp.asarray(several[:, None, None] * matrix[None])
    nested = jax.jit(jax.vmap(jax.vmap(careful, (None, 0)), (0, None)))(matrices, vectors)
    ratios = several[None, :] / several[:, None]
    np.testing.assert_allclose(nested, ratios[:, :, None] * exact[None, None], rtol=3e-7)


def test_it_has_derivatives_and_runs_in_loops(system):
    matrix, vector, _ = map(jnp.asarray, system)
    jacobian = jax.jit(jax.jacfwd(lambda vector: careful(matrix, vector)))(vector)
    exact = np.linalg.inv(np.asarray(matrix, float))
    np.testing.assert_allclose(jacobian, exact, rtol=1e-5, atol=1e-6)
    well = jnp.eye(4, dtype=jnp.float32) * 2
    halved, _ = jax.jit(
        lambda vector: jax.lax.scan(lambda x, _: (careful(well, x), None), vector, length=3)
    )(vector)
    np.testing.assert_allclose(halved, vector / 8, rtol=1e-6)
