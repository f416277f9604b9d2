r"""The projection onto a polyhedral set by a primal-dual active set method.

On the plane through a face of :math:`C` the projection of ``t`` in the norm whose inverse matrix is
``B`` is linear. Let the rows of ``E`` be the unit vectors of the fixed entries and the normals of
the fixed sums, and :math:`E y = c` the plane. Then

.. math:: E B E^\top \nu = E t - c, \qquad \mu = E^\top \nu, \qquad y = t - B\mu.

Where the KKT conditions fail (an entry beyond its bound, a multiplier of the wrong sign) the entry
changes sides, :math:`y_i + \tau_i\mu_i` says to which, and the next face is tried (Hintermüller,
Ito and Kunisch 2002: a semismooth Newton method). From the multipliers of the round before one or
two faces are enough. On ill-conditioned matrices the method may go round in circles, and says so.

A face costs one Cholesky factor of :math:`E B E^\top`, gathered into the smallest of a few sizes.
What else it takes is small, and put together so that starting it takes little time.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optax_varynorm._sequences import one_sequence
from optax_varynorm.domains.constraint import Constraint, Face, length
from optax_varynorm.domains.metric import Stiffness
from optax_varynorm.kernels import one_kernel

# One to three from a good start, up to twelve from a bad one; more are a circle.
MOST_FACES = 16
# Sizes of the factor, as fractions of the whole.
FRACTIONS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
# Up to here the matrix is put together once, beyond at each face the rows that it needs.
LARGEST_WHOLE = 64


class Search(NamedTuple):
    """Attributes:
    multipliers: on the face tried last.
    moved: ``B`` times the multipliers.
    levels: the multipliers of the sums.
    error: how far the KKT conditions are from holding, times how much that may matter for the
      point, in units of the distance moved.
    face: the one to try next.
    tried: how many were.
    is_settled: whether the next face is the last one, or as good.
    """

    multipliers: jax.Array
    moved: jax.Array
    levels: jax.Array
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


def solve(
    constraint: Constraint, target: jax.Array, stiffness: Stiffness, start: jax.Array
) -> tuple[Search, jax.Array]:
    """The projection of ``target``, from multipliers ``start``, and the point of the set.

    They are what was looked for if the search ``is_settled``.
    """
    faces = constraint.faces
    assert faces is not None
    steps = stiffness.diagonal
    eps = jnp.finfo(target.dtype).eps
    if constraint.rows is None and target.size <= LARGEST_WHOLE:
        stiffness = stiffness.put_together()

    @one_sequence
    def begin(start, moved) -> Search:
        levels = faces.levels(start)
        return Search(
            multipliers=start,
            moved=moved,
            levels=levels,
            error=jnp.asarray(jnp.inf, target.dtype),
            face=faces.at(target - moved + steps * start, steps, levels),
            tried=jnp.zeros((), jnp.int32),
            is_settled=jnp.zeros((), bool),
        )

    @one_sequence
    def judge(tried_face: Face, tried, found: Solution, moved) -> Search:
        y = target - moved
        z = y + steps * found.multipliers
        face = faces.at(z, steps, found.levels)
        missed = y - faces.nearest(z, steps, found.levels)
        missed_totals = _products(face.normals, y[None, :])[:, 0] - face.totals
        wrong = jnp.sqrt(jnp.sum(missed**2) + jnp.sum(missed_totals**2))
        distance = length(moved) + jnp.sqrt(eps) * length(target)
        error = found.growth * wrong + stiffness.rounding(found.multipliers)
        error = error / jnp.where(distance > 0, distance, 1)
        same = jnp.all((face.fixed == tried_face.fixed) & (face.values == tried_face.values))
        same &= jnp.all(face.normals == tried_face.normals)
        # A face that stays, but whose plane was not reached, is none.
        settled = (same & (wrong <= 0.1 * distance)) | (wrong <= 8 * eps * distance)
        return Search(found.multipliers, moved, found.levels, error, face, tried + 1, settled)

    @one_sequence
    def point_of(multipliers, moved, levels):
        z = target - moved + steps * multipliers
        return faces.repair(faces.nearest(z, steps, levels))

    def try_face(search: Search) -> Search:
        found = _on_plane(search.face, target, stiffness)
        return judge(search.face, search.tried, found, stiffness.times(found.multipliers))

    def unsettled(search):
        return ~search.is_settled & (search.tried < MOST_FACES)

    search = jax.lax.while_loop(unsettled, try_face, begin(start, stiffness.times(start)))
    return search, point_of(search.multipliers, search.moved, search.levels)


def _on_plane(face: Face, target: jax.Array, stiffness: Stiffness) -> Solution:
    r"""The point of the plane.

    An error on the plane's right-hand side grows by at most the root of the matrix's condition
    number until it reaches the point; the pivots tell about how large that is.

    The right-hand side is one more row of the matrix, so that factorizing it is the first of the
    two triangular solves as well.
    """
    size, sums = target.size, len(face.normals)
    border = sums + 1
    # With the border, multiples of eight: of such sizes XLA makes vectors.
    sizes = sorted(
        {min(size, 8 * math.ceil((size * part + border) / 8) - border) for part in FRACTIONS}
    )

    @one_sequence
    def prepare(face):
        order, places, count = arrange(face.fixed, border)
        first_size = jnp.sum(count > jnp.asarray(sizes[:-1], jnp.int32), dtype=jnp.int32)
        match sums:
            case 0:
                products = face.normals
            case 1:
                products = stiffness.times(face.normals[0])[None, :]
            case _:
                products = jax.vmap(stiffness.times)(face.normals)
        return order, places, count, first_size, products

    order, places, count, first_size, products = prepare(face)

    def with_rows(rows):
        whole = rows + border

        def is_used(count):
            return jnp.arange(whole, dtype=jnp.int32) < count

        @one_sequence
        def borders(order, count, face, products):
            # A row of zeros has level zero.
            absent = jnp.diag((~jnp.any(face.normals != 0, axis=1)).astype(target.dtype))
            corner = _products(face.normals, products) + absent
            totals = _products(face.normals, target[None, :])[:, 0] - face.totals
            # The last pivot has to be positive, and is not used.
            last = jnp.sqrt(jnp.finfo(target.dtype).max).astype(target.dtype)
            corner = jnp.block([[corner, totals[:, None]], [totals[None, :], last]])
            sides = jnp.concatenate([products, (target - face.values)[None, :]])
            sides = jnp.where(is_used(count)[None, :], sides[:, order], 0)
            in_corner = np.arange(whole)[None, :] >= rows
            return jnp.where(in_corner, jnp.pad(corner, ((0, 0), (rows, 0))), sides)

        def assemble(order, count, sides):
            used = is_used(count)
            identity = np.eye(whole, dtype=target.dtype)
            matrix = jnp.where(used[:, None] & used[None, :], stiffness.block(order), identity)
            # By columns, as libraries have their matrices. What is above the diagonal is not read.
            in_border = np.arange(whole)[None, :] >= rows
            return jnp.where(in_border, jnp.pad(sides.T, ((0, 0), (rows, 0))), matrix)

        @one_sequence
        def finish(backwards, pivots, places, count, face) -> Solution:
            divided = -backwards[:-1] / backwards[-1]
            multipliers = jnp.where(face.fixed, divided[jnp.minimum(places, rows - 1)], 0)
            levels = divided[rows:]
            used = is_used(count)[:rows]
            pivots = jnp.where(used, pivots[:rows], jnp.where(count > 0, pivots[0], 1))
            return Solution(
                multipliers=multipliers + _products(levels[None, :], face.normals.T)[0],
                levels=levels,
                growth=jnp.max(pivots) / jnp.min(pivots),
            )

        def divide(order):
            order = order[:whole]
            sides = borders(order, count, face, products)
            in_short = one_kernel if size <= LARGEST_WHOLE else lambda function: function
            matrix = in_short(assemble)(order, count, sides)
            factor = jax.lax.linalg.cholesky(matrix.T, symmetrize_input=False)
            # The last row of the factor's inverse is the solution, but for its sign and size.
            backwards = jax.lax.linalg.triangular_solve(
                factor, np.eye(1, whole, rows + sums, target.dtype), left_side=False, lower=True
            )
            return finish(backwards[0], jnp.diagonal(factor), places, count, face)

        return divide

    return jax.lax.switch(first_size, [with_rows(rows) for rows in sizes], order)


def arrange(fixed: jax.Array, more: int = 0) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The fixed entries in order, the place of each of them in it, and how many there are.

    Beyond them the order has any entries, up to ``more`` than there are.
    """

    @one_kernel
    def put_all(fixed):
        def put(i, arranged):
            order, places, count = arranged
            order = order.at[count].set(i, mode="promise_in_bounds")
            places = places.at[i].set(count, mode="promise_in_bounds")
            return order, places, count + fixed[i].astype(jnp.int32)

        none = jnp.zeros((), jnp.int32)
        order = jnp.zeros((fixed.size + more,), jnp.int32)
        places = jnp.zeros((fixed.size,), jnp.int32)
        return jax.lax.fori_loop(none, jnp.int32(fixed.size), put, (order, places, none))

    return put_all(fixed)


def _products(rows: jax.Array, others: jax.Array) -> jax.Array:
    """``rows @ others.T``, of few rows, as sums: a product would be a kernel of its own."""
    return jnp.sum(rows[:, None, :] * others[None, :, :], axis=2)
