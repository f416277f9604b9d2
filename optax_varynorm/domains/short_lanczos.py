r"""The secular equation of a small matrix by Lanczos' method, all in one kernel.

The method of ``lanczos`` for matrices so small that starting its operations would take longer than
they do. Everything is written as loops and sums, without libraries, for ``one_kernel``. It starts
from a multiplier of the right size, such as the last round's, and is not careful: vectors are not
made orthogonal again, and it ends after so many products. What it misses shows in the error of the
projection; ``lanczos`` is for these cases.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from optax_varynorm.domains import secular
from optax_varynorm.domains.constraint import length
from optax_varynorm.kernels import one_kernel

MOST_PRODUCTS = 40
# Two to five from the last round's multiplier.
MOST_NEWTON_STEPS = 10


class Basis(NamedTuple):
    r"""Attributes:
    vectors: the rows of ``Q``, zero where there is none yet.
    next_vector: the next one.
    previous_vector: the last one.
    diagonal: of ``T``.
    beside: the entries beside it, each in the row of the later vector.
    next_beside: the one to ``next_vector``.
    known: how many vectors there are.
    pivot: the last one of :math:`I + \kappa T`, for the multiplier to start from.
    missed: the length of what the solution for that multiplier misses.
    """

    vectors: jax.Array
    next_vector: jax.Array
    previous_vector: jax.Array
    diagonal: jax.Array
    beside: jax.Array
    next_beside: jax.Array
    known: jax.Array
    pivot: jax.Array
    missed: jax.Array


@one_kernel
def solve(matrix, unit, target, radius, start) -> secular.Root:
    """As ``lanczos.solve``, with the matrix ``B`` itself."""
    dtype, size = target.dtype, target.size
    eps = float(jnp.finfo(dtype).eps)
    long = length(target)
    capacity = min(size, MOST_PRODUCTS)
    nothing = jnp.zeros((capacity,), dtype)
    one = jnp.ones((), dtype)
    # The multiplier may grow a little until the next round, and then more would be missed.
    kappa = 1.25 * start * unit

    def extend(basis: Basis) -> Basis:
        vector, before = basis.next_vector, basis.next_beside
        product = jnp.sum(matrix * vector[:, None], axis=0) / unit
        along = jnp.sum(product * vector)
        rest = product - along * vector - before * basis.previous_vector
        beside = jnp.sqrt(jnp.sum(rest**2))
        is_new = beside > 4 * eps * jnp.abs(along)
        pivot = 1 + kappa * along - (kappa * before) ** 2 / basis.pivot
        here = basis.known
        return Basis(
            vectors=basis.vectors.at[here].set(vector, mode="promise_in_bounds"),
            next_vector=rest / jnp.where(is_new, beside, 1),
            previous_vector=vector,
            diagonal=basis.diagonal.at[here].set(along, mode="promise_in_bounds"),
            beside=basis.beside.at[here].set(before, mode="promise_in_bounds"),
            next_beside=beside,
            known=here + 1,
            pivot=pivot,
            missed=jnp.where(is_new, basis.missed * kappa * beside / pivot, 0),
        )

    basis = jax.lax.while_loop(
        lambda basis: (basis.missed > 128 * eps * (long - radius)) & (basis.known < capacity),
        extend,
        Basis(
            vectors=jnp.zeros((capacity, size), dtype),
            next_vector=target / long,
            previous_vector=jnp.zeros_like(target),
            diagonal=nothing,
            beside=nothing,
            next_beside=jnp.zeros((), dtype),
            known=jnp.zeros((), jnp.int32),
            pivot=one,
            missed=long,
        ),
    )
    root = _newton(basis, long, radius, start * unit)
    point = jnp.sum(root.point[:, None] * basis.vectors, axis=0)
    return secular.Root(root.multiplier / unit, point * (radius / length(point)))


def _newton(basis: Basis, long, radius, start) -> secular.Root:
    r"""Multiplier and point in the basis, by :math:`I + \kappa T = L D L^\top`."""
    nothing = jnp.zeros_like(basis.diagonal)
    zero = jnp.zeros((), nothing.dtype)
    known = basis.known

    def at(array, i):
        return array.at[i].get(mode="promise_in_bounds")

    def put(array, i, value):
        return array.at[i].set(value, mode="promise_in_bounds")

    def divide(kappa):
        """The solution for a multiplier, and its product with the inverse of ``I + kappa T``."""

        def forward(i, carry):
            factors, halves, pivots, pivot, half = carry
            factor = kappa * at(basis.beside, i) / pivot
            pivot = 1 + kappa * (at(basis.diagonal, i) - factor * at(basis.beside, i))
            half = jnp.where(i > 0, -factor * half, long)
            arrays = put(factors, i, factor), put(halves, i, half / pivot), put(pivots, i, pivot)
            return *arrays, pivot, half

        factors, halves, pivots, _, _ = jax.lax.fori_loop(
            0, known, forward, (nothing, nothing, nothing, zero + 1, zero)
        )

        def backward(j, carry):
            solution, factor, last = carry
            i = known - 1 - j
            last = at(halves, i) - factor * last
            return put(solution, i, last), at(factors, i), last

        solution, _, _ = jax.lax.fori_loop(0, known, backward, (nothing, zero, zero))

        def again(i, carry):
            total, half = carry
            half = at(solution, i) - at(factors, i) * half
            return total + half**2 / at(pivots, i), half

        inner, _ = jax.lax.fori_loop(0, known, again, (zero, zero))
        return solution, inner

    def step(carry):
        kappa, _, _, steps = carry
        solution, inner = divide(kappa)
        square = jnp.sum(solution**2)
        now = jnp.sqrt(square)
        slope = (square - inner) / kappa
        change = (now / radius - 1) * square / slope
        wanted = jnp.where(change > -kappa, kappa + change, kappa / 2)
        return jnp.where(jnp.isfinite(wanted), wanted, kappa), solution, now / radius - 1, steps + 1

    eps = float(jnp.finfo(nothing.dtype).eps)
    kappa, solution, _, _ = jax.lax.while_loop(
        lambda carry: (jnp.abs(carry[2]) > 4 * eps) & (carry[3] < MOST_NEWTON_STEPS),
        step,
        (start, nothing, zero + 1, jnp.zeros((), jnp.int32)),
    )
    return secular.Root(kappa, solution)
