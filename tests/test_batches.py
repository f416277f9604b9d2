"""Batches that are a loop play what a batch plays, whatever the function uses from outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optax_varynorm._batches import one_by_one
from optax_varynorm.kernels import one_kernel


def halvings(factor, number):
    """How often a number can be halved until it is below one, times an outside factor."""

    @one_by_one
    def count(number):
        def halve(carry):
            number, steps = carry
            return number / 2, steps + 1

        return jax.lax.while_loop(lambda carry: carry[0] >= 1, halve, (number, 0))[1] * factor

    return count(number)


def test_a_batch_is_a_loop_over_its_members():
    numbers, factors = jnp.array([0.5, 4.0, 100.0]), jnp.array([1, 10, 100])
    np.testing.assert_array_equal(jax.vmap(halvings, (None, 0))(jnp.int32(2), numbers), [0, 6, 14])
    np.testing.assert_array_equal(jax.vmap(halvings, (0, None))(factors, numbers[1]), [3, 30, 300])
    both = jax.jit(jax.vmap(halvings))(factors, numbers)
    np.testing.assert_array_equal(both, [0, 30, 700])
    nested = jax.vmap(lambda factor: jax.vmap(lambda n: halvings(factor, n))(numbers))(factors)
    np.testing.assert_array_equal(nested, np.outer(factors, [0, 3, 7]))
    assert str(jax.make_jaxpr(jax.vmap(halvings))(factors, numbers)).count("scan") == 1


def test_derivatives_pass_through():
    def square(x):
        return one_by_one(lambda x: jnp.sum(x**2))(x)

    points = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(jax.jacfwd(square)(points[1]), 2 * points[1])
    np.testing.assert_allclose(jax.vmap(jax.jacfwd(square))(points), 2 * points)


@pytest.mark.parametrize("count", [1, 8, 11])
def test_kernels_of_batches_take_empty_arrays_and_arrays_from_outside(count):
    scale = jnp.arange(1.0, count + 1)
    numbers = jnp.arange(5.0 * count).reshape(count, 5)
    nothing = jnp.zeros((count, 0, 3))

    def decayed(factor, numbers, nothing):
        @one_kernel
        def run(numbers, nothing):
            total, _ = jax.lax.scan(lambda total, x: (total / 2 + x, None), 0.0, numbers)
            return factor * total, nothing + 1

        return run(numbers, nothing)

    totals, still_nothing = jax.jit(jax.vmap(decayed))(scale, numbers, nothing)
    np.testing.assert_allclose(totals, scale * (numbers @ 2.0 ** jnp.arange(-4.0, 1.0)), rtol=1e-6)
    assert still_nothing.shape == nothing.shape
