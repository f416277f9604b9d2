r"""The projection onto a polyhedral set by a primal-dual active set method.

On the plane through a face of :math:`C` the projection of ``t`` in the norm whose inverse matrix is
``B`` is linear. Let the rows of ``E`` be the unit vectors of the fixed entries and the normals of
the fixed sums, and :math:`E y = c` the plane. Then

.. math:: E B E^\top \nu = E t - c, \qquad \mu = E^\top \nu, \qquad y = t - B\mu.

Where the KKT conditions fail (an entry beyond its bound, a multiplier of the wrong sign) the entry
changes sides, :math:`y_i + \tau_i\mu_i` says to which, and the next face is tried (Hintermüller,
Ito and Kunisch 2002: a semismooth Newton method). From the multipliers of the round before one or
two faces are enough; a step of Jacobi's method on the KKT conditions makes two of them rarer. On
ill-conditioned matrices the method may go round in circles, and says so.

A face costs one Cholesky factor of :math:`E B E^\top`, gathered into the smallest of a few sizes.
What else it takes is small, and put together so that starting it takes little time.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optax_varynorm._sequences import one_sequence
from optax_varynorm.domains.constraint import Constraint, Face
from optax_varynorm.domains.in_kernels import add_up, at, combine_once, largest, length, put
from optax_varynorm.domains.metric import Stiffness
from optax_varynorm.kernels import TOO_LONG_A_SUM, one_kernel

# One to three from a good start, up to twelve from a bad one; more are a circle.
MOST_FACES = 16
# How far the multipliers to start from move to where each would be if it were alone.
RELAXATION = 0.6
# Sizes of the factor, as fractions of the whole.
FRACTIONS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
# Up to here the matrix is put together once, beyond at each face the rows that it needs.
LARGEST_WHOLE = 64


class Search(NamedTuple):
    """Attributes:
    multipliers: on the face tried last.
    moved: ``B`` times the multipliers.
    point: of the set.
    error: how far the KKT conditions are from holding, times how much that may matter for the
      point, in units of the distance moved.
    face: the one to try next.
    tried: how many were.
    is_settled: whether the next face is the last one, or as good.
    """

    multipliers: jax.Array
    moved: jax.Array
    point: jax.Array
    error: jax.Array
    face: Face
    tried: jax.Array
    is_settled: jax.Array


class Solution(NamedTuple):
    """Attributes:
    multipliers: of the entries.
    levels: of the sums.
    growth: how much an error on the plane's right-hand side may grow until it reaches the point.
    """

    multipliers: jax.Array
    levels: jax.Array
    growth: jax.Array


class Order(NamedTuple):
    """Attributes:
    entries: the fixed ones, and then any others.
    places: of each fixed entry in this order.
    number: how many are fixed.
    """

    entries: jax.Array
    places: jax.Array
    number: jax.Array


class Divided(NamedTuple):
    """Attributes:
    joined: one after the other, the last row of the factor's inverse and the factor's diagonal.
      Both begin with the fixed entries in their order, and any numbers for the others. The row ends
      with the sums and the right-hand side.
    order: of the entries.
    """

    joined: jax.Array
    order: Order


def solve(
    constraint: Constraint, target: jax.Array, stiffness: Stiffness, start: jax.Array
) -> Search:
    """The projection of ``target``, from multipliers ``start``, if the search ``is_settled``."""
    faces = constraint.faces
    assert faces is not None
    steps = stiffness.diagonal
    eps = jnp.finfo(target.dtype).eps
    sums = jax.eval_shape(faces.levels, start).size
    is_small = target.size <= LARGEST_WHOLE and (sums + 1) ** 2 * target.size < TOO_LONG_A_SUM
    if constraint.rows is None and is_small:
        stiffness = stiffness.put_together()
        stiffness = stiffness._replace(times=functools.partial(combine_once, stiffness.block(None)))
        groups = IN_KERNELS
    else:
        groups = IN_SEQUENCES

    @groups.part
    def first_search(start, moved) -> tuple[Search, jax.Array]:
        levels = faces.levels(start)
        search = Search(
            multipliers=start,
            moved=moved,
            point=target,
            error=jnp.asarray(jnp.inf, target.dtype),
            face=faces.at(target - moved + steps * start, steps, levels),
            tried=jnp.zeros((), jnp.int32),
            is_settled=jnp.zeros((), bool),
        )
        return search, jnp.sqrt(eps) * length(target)

    @groups.part
    def relax(start, moved):
        z = target - moved + steps * start
        alone = (z - faces.nearest(z, steps, faces.levels(start))) / steps
        return start + RELAXATION * (alone - start)

    @groups.whole
    def begin(start):
        start = relax(start, stiffness.times(start))
        return first_search(start, stiffness.times(start))

    first, smallest = begin(start)

    @groups.part
    def compare(tried_face: Face, tried, found: Solution, moved) -> Search:
        y = target - moved
        z = y + steps * found.multipliers
        face = faces.at(z, steps, found.levels)
        nearest = faces.nearest(z, steps, found.levels)
        distance = length(moved) + smallest
        distance = jnp.where(distance > 0, distance, 1)
        # In units of the distance, so that no square is lost.
        missed = (y - nearest) / distance
        missed_totals = (_products(face.normals, y[None, :])[:, 0] - face.totals) / distance
        wrong = jnp.sqrt(add_up(missed**2) + jnp.sum(missed_totals**2))
        error = found.growth * wrong + stiffness.rounding(found.multipliers / distance)
        same = (face.fixed == tried_face.fixed) & (face.values == tried_face.values)
        same = jnp.all(same & jnp.all(face.normals == tried_face.normals, axis=0))
        # A face that stays, but whose plane was not reached, is none.
        settled = (same & (wrong <= 0.1)) | (wrong <= 8 * eps)
        point = faces.repair(nearest)
        return Search(found.multipliers, moved, point, error, face, tried + 1, settled)

    @groups.whole
    def judge(face: Face, tried, divided: Divided) -> Search:
        found = groups.part(_as_solution)(face, divided)
        return compare(face, tried, found, stiffness.times(found.multipliers))

    def try_face(search: Search) -> Search:
        divided = _divide(search.face, target, stiffness, groups)
        return judge(search.face, search.tried, divided)

    def unsettled(search):
        return ~search.is_settled & (search.tried < MOST_FACES)

    return jax.lax.while_loop(unsettled, try_face, first)


class Groups(NamedTuple):
    """How the work between two factorizations is grouped.

    Attributes:
      whole: decorates all that is between two factorizations.
      part: decorates what is between two products with the matrix.
      loop: decorates a loop over the entries.
    """

    whole: Callable[[Callable], Callable]
    part: Callable[[Callable], Callable]
    loop: Callable[[Callable], Callable]


def _as_it_is(function: Callable) -> Callable:
    return function


IN_KERNELS = Groups(whole=one_kernel, part=_as_it_is, loop=_as_it_is)
IN_SEQUENCES = Groups(whole=_as_it_is, part=one_sequence, loop=one_kernel)


def _divide(face: Face, target: jax.Array, stiffness: Stiffness, groups: Groups) -> Divided:
    r"""The multipliers on the plane through a face.

    The right-hand side is one more row of the matrix, so that factorizing it is the first of the
    two triangular solves as well.
    """
    size, sums = target.size, len(face.normals)
    border = sums + 1
    # With the border, multiples of eight: of such sizes XLA makes vectors.
    sizes = sorted(
        {min(size, 8 * math.ceil((size * part + border) / 8) - border) for part in FRACTIONS}
    )

    @groups.whole
    @groups.part
    def prepare(face):
        order = groups.loop(functools.partial(arrange, more=border))(face.fixed)
        first_size = jnp.sum(order.number > jnp.asarray(sizes[:-1], jnp.int32), dtype=jnp.int32)
        match sums:
            case 0:
                products = face.normals
            case 1:
                products = stiffness.times(face.normals[0])[None, :]
            case _:
                products = jax.vmap(stiffness.times)(face.normals)
        return order, first_size, products

    order, first_size, products = prepare(face)

    def with_rows(rows):
        whole = rows + border

        def is_used(count):
            return jnp.arange(whole, dtype=jnp.int32) < count

        @one_sequence
        def borders(entries, count, face, products):
            # A row of zeros has level zero.
            absent = jnp.diag((~jnp.any(face.normals != 0, axis=1)).astype(target.dtype))
            corner = _products(face.normals, products) + absent
            totals = _products(face.normals, target[None, :])[:, 0] - face.totals
            # The last pivot has to be positive, and is not used.
            last = jnp.sqrt(jnp.finfo(target.dtype).max).astype(target.dtype)
            corner = jnp.block([[corner, totals[:, None]], [totals[None, :], last]])
            sides = jnp.concatenate([products, (target - face.values)[None, :]])
            sides = jnp.where(is_used(count)[None, :], sides[:, entries[:whole]], 0)
            in_corner = np.arange(whole)[None, :] >= rows
            return jnp.where(in_corner, jnp.pad(corner, ((0, 0), (rows, 0))), sides)

        @groups.whole
        def assemble(entries, count, sides):
            used = is_used(count)
            identity = np.eye(whole, dtype=target.dtype)
            block = stiffness.block(entries[:whole])
            matrix = jnp.where(used[:, None] & used[None, :], block, identity)
            # By columns, as libraries have their matrices. What is above the diagonal is not read.
            columns = np.arange(whole)[None, :]
            if groups is IN_SEQUENCES:
                return jnp.where(columns >= rows, jnp.pad(sides.T, ((0, 0), (rows, 0))), matrix)
            # Few, and written out: in a kernel padding is a branch for every number.
            for column, side in enumerate(sides, start=rows):
                matrix = jnp.where(columns == column, side[:, None], matrix)
            return matrix

        @groups.whole
        def end(factor):
            # The last row of the factor's inverse is the solution, but for its sign and size.
            if groups is IN_KERNELS:
                backwards = last_row_of_inverse(factor)
            else:
                last = np.eye(1, whole, whole - 1, target.dtype)
                backwards = jax.lax.linalg.triangular_solve(factor, last, lower=True)[0]
            gap = jnp.zeros((size - rows,), target.dtype)
            # One array: branches of more than eight operations go through a queue of XLA's.
            return jnp.concatenate(
                [backwards[:rows], gap, backwards[rows:], jnp.diagonal(factor)[:rows], gap]
            )

        def divide(entries):
            # Not in the kernel of the matrix, which would do it again for every entry.
            sides = borders(entries, order.number, face, products)
            matrix = assemble(entries, order.number, sides)
            return end(jax.lax.linalg.cholesky(matrix.T, symmetrize_input=False))

        return divide

    joined = jax.lax.switch(first_size, [with_rows(rows) for rows in sizes], order.entries)
    return Divided(joined, order)


def last_row_of_inverse(factor: jax.Array) -> jax.Array:
    """Of a lower triangle, as a loop for a kernel."""
    size = len(factor)

    def back(k, carry):
        found, left = carry
        i = size - 1 - k
        row = jax.lax.dynamic_index_in_dim(factor, i, keepdims=False)
        entry = at(left, i) / at(row, i)
        return put(found, i, entry), left - entry * row

    last = jnp.asarray(np.eye(1, size, size - 1)[0], factor.dtype)
    return jax.lax.fori_loop(0, size, back, (jnp.zeros_like(last), last))[0]


def _as_solution(face: Face, divided: Divided) -> Solution:
    """An error on the right-hand side grows by at most the root of the matrix's condition number
    until it reaches the point; the pivots tell about how large that is.
    """
    order, size = divided.order, face.fixed.size
    backwards, pivots = divided.joined[:-size], divided.joined[-size:]
    multipliers = -backwards[:-1] / backwards[-1]
    places = jnp.minimum(order.places, size - 1)
    own = jnp.where(face.fixed, multipliers[places], 0)
    levels = multipliers[size:]
    is_used = jnp.arange(size, dtype=jnp.int32) < order.number
    pivots = jnp.where(is_used, pivots, jnp.where(order.number > 0, pivots[0], 1))
    return Solution(
        multipliers=own + _products(levels[None, :], face.normals.T)[0],
        levels=levels,
        growth=largest(pivots) / -largest(-pivots),
    )


def arrange(fixed: jax.Array, more: int = 0) -> Order:
    """The order of the fixed entries, and up to ``more`` entries than there are beyond."""

    def append(i, order: Order) -> Order:
        entries = put(order.entries, order.number, i)
        places = put(order.places, i, order.number)
        return Order(entries, places, order.number + at(fixed, i).astype(jnp.int32))

    none = jnp.zeros((), jnp.int32)
    entries = jnp.zeros((fixed.size + more,), jnp.int32)
    places = jnp.zeros((fixed.size,), jnp.int32)
    return jax.lax.fori_loop(none, jnp.int32(fixed.size), append, Order(entries, places, none))


def _products(rows: jax.Array, others: jax.Array) -> jax.Array:
    """``rows @ others.T``, of few rows, as sums: a product would be a kernel of its own."""
    return add_up(rows[:, None, :] * others[None, :, :])
