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
from optax_varynorm.domains.in_kernels import add_up, at, combine, in_vectors, length, put

MOST_PRODUCTS = 40
# In the smallest matrices more than their size: rounding keeps so many from being exact.
MOST_PRODUCTS_OF_FEW_ROWS = 24
# Two or three from the last round's multiplier.
MOST_NEWTON_STEPS = 10


class Basis(NamedTuple):
    r"""Attributes:
    vectors: the rows of ``Q`` and the next one, zero where there is none yet.
    next_vector: the next one.
    previous_vector: the last one.
    diagonal: of ``T``.
    last_diagonal: its last entry, near which the next one may be.
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
    last_diagonal: jax.Array
    beside: jax.Array
    next_beside: jax.Array
    known: jax.Array
    pivot: jax.Array
    missed: jax.Array


def solve(matrix, unit, target, radius, start) -> secular.Root:
    """As ``lanczos.solve``, with the matrix ``B`` itself."""
    dtype, size = target.dtype, target.size
    eps = float(jnp.finfo(dtype).eps)
    long = length(target)
    capacity = min(max(size, MOST_PRODUCTS_OF_FEW_ROWS), MOST_PRODUCTS)
    nothing = jnp.zeros((capacity,), dtype)
    one = jnp.ones((), dtype)
    # The multiplier may grow a little until the next round, and then more would be missed.
    kappa = 1.25 * start * unit
    reciprocal = 1 / unit

    def extend(basis: Basis) -> Basis:
        vector, before, near = basis.next_vector, basis.next_beside, basis.last_diagonal
        product = reciprocal * combine(matrix, vector)
        # Close to what is orthogonal to both vectors, so that the two sums need not wait for each
        # other: the second one follows from Pythagoras without losing many digits.
        rest = product - before * basis.previous_vector - near * vector
        along = add_up(rest * vector)
        square = add_up(rest**2) - along**2
        entry = near + along
        is_new = square > jnp.maximum(16 * eps * along**2, (4 * eps * entry) ** 2)
        beside = jnp.sqrt(jnp.where(is_new, square, 1))
        pivot = 1 + kappa * entry - (kappa * before) ** 2 / basis.pivot
        here = basis.known
        following = in_vectors((rest - along * vector) * (1 / beside))
        return Basis(
            vectors=put(basis.vectors, here + 1, following),
            next_vector=following,
            previous_vector=vector,
            diagonal=put(basis.diagonal, here, entry),
            last_diagonal=entry,
            beside=put(basis.beside, here, before),
            next_beside=beside,
            known=here + 1,
            pivot=pivot,
            missed=jnp.where(is_new, basis.missed * kappa * beside / pivot, 0),
        )

    basis = jax.lax.while_loop(
        lambda basis: (basis.missed > 128 * eps * (long - radius)) & (basis.known < capacity),
        extend,
        Basis(
            vectors=put(jnp.zeros((capacity + 1, size), dtype), 0, target / long),
            next_vector=target / long,
            previous_vector=jnp.zeros_like(target),
            diagonal=nothing,
            last_diagonal=one,
            beside=nothing,
            next_beside=jnp.zeros((), dtype),
            known=jnp.zeros((), jnp.int32),
            pivot=one,
            missed=long,
        ),
    )
    root = _newton(basis, long, radius, start * unit)
    point = combine(basis.vectors[:capacity], root.point)
    return secular.Root(root.multiplier / unit, point * (radius / length(point)))


def _newton(basis: Basis, long, radius, start) -> secular.Root:
    r"""Multiplier and point in the basis.

    With :math:`s = 1/\kappa` the point is :math:`t s (sI + T)^{-1} e_1`. Of the continued fraction

    .. math:: R(s) = e_1^\top (sI + T)^{-1} e_1 = 1/c_1, \qquad
              c_i = s + T_{ii} - T_{i,i+1}^2 / c_{i+1},

    the derivatives are what the secular equation needs: :math:`-R' = c_1'/c_1^2` is the square of
    :math:`\|(sI + T)^{-1} e_1\|`. All terms of their recursions have the same sign.

    With the third one Halley's method costs no more than Newton's, and saves a step. Let
    :math:`e` be the excess of the point's length over the radius, in units of it, and
    :math:`a = 1 + s c_1''/(2 c_1') - s c_1'/c_1`. Newton's step for the reciprocal of the length is
    :math:`\kappa e / a`, and Halley's that one divided by :math:`1 - e h`, with

    .. math:: 2 a^2 h = \frac{s^2 c_1^{(3)}}{2 c_1'} - 3\Big(\frac{s c_1''}{2 c_1'}\Big)^2 \ge 0.
    """
    known = basis.known
    zero = jnp.zeros((), basis.diagonal.dtype)
    nothing = jnp.zeros_like(basis.diagonal)
    eps = float(jnp.finfo(zero.dtype).eps)

    def step(carry):
        kappa, _, _, steps = carry
        s = 1 / kappa

        def up(j, carry):
            inverses, inverse, first, second, third, beside = carry
            i = known - 1 - j
            ratio = beside * inverse
            bend = first * inverse
            third = ratio**2 * (third - 6 * bend * (second - bend * first))
            second = ratio**2 * (second - 2 * bend * first)
            first = 1 + ratio**2 * first
            inverse = 1 / (s + at(basis.diagonal, i) - beside * ratio)
            return put(inverses, i, inverse), inverse, first, second, third, at(basis.beside, i)

        inverses, inverse, first, second, third, _ = jax.lax.fori_loop(
            0, known, up, (nothing, zero, zero, zero, zero, zero)
        )
        excess = long / radius * s * inverse * jnp.sqrt(first) - 1
        turn = s * second / (2 * first)
        slope = jnp.maximum(1 + turn - s * first * inverse, eps)
        curve = (s**2 * third / (2 * first) - 3 * turn**2) / (2 * slope**2)
        change = excess / slope / (1 - jnp.clip(excess * curve, -2, 0.5))
        wanted = jnp.where(change > -1, kappa + change * kappa, kappa / 2)
        # The point is still the one before the change, and what changes little is not seen.
        is_last = (jnp.abs(change) <= 128 * eps) | (jnp.abs(excess) <= 4 * eps)
        return jnp.where(jnp.isfinite(wanted), wanted, kappa), inverses, is_last, steps + 1

    def unfinished(carry):
        _, _, is_last, steps = carry
        # Two at least, for the first one's change to be in the point, and in its derivative.
        return (~is_last | (steps < 2)) & (steps < MOST_NEWTON_STEPS)

    kappa, inverses, _, _ = jax.lax.while_loop(
        unfinished,
        step,
        (start, nothing, jnp.zeros((), bool), jnp.zeros((), jnp.int32)),
    )

    def down(i, carry):
        solution, last = carry
        last = -last * at(basis.beside, i) * at(inverses, i)
        return put(solution, i, last), last

    first_entry = long / kappa * inverses[0]
    solution, _ = jax.lax.fori_loop(1, known, down, (put(nothing, 0, first_entry), first_entry))
    return secular.Root(kappa, solution)
