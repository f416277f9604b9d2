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
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from optax_varynorm.domains.constraint import Constraint, Face, length
from optax_varynorm.domains.metric import Stiffness

# One to three from a good start, up to twelve from a bad one; more are a circle.
MOST_FACES = 16
# Sizes of the factor, as fractions of the whole.
FRACTIONS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)


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


def solve(
    constraint: Constraint, target: jax.Array, stiffness: Stiffness, start: jax.Array
) -> Search:
    """The projection of ``target``, from multipliers ``start``; ``is_settled`` if it was found."""
    faces = constraint.faces
    assert faces is not None
    steps = stiffness.diagonal
    eps = jnp.finfo(target.dtype).eps
    smallest = jnp.sqrt(eps) * length(target)

    def try_face(search: Search) -> Search:
        multipliers, levels, growth = on_plane(search.face, target, stiffness)
        moved = stiffness.times(multipliers)
        y = target - moved
        z = y + steps * multipliers
        face = faces.at(z, steps, levels)
        missed = y - faces.nearest(z, steps, levels)
        missed_totals = face.normals @ y - face.totals
        wrong = jnp.sqrt(jnp.vdot(missed, missed) + jnp.vdot(missed_totals, missed_totals))
        distance = length(moved) + smallest
        error = growth * wrong + stiffness.rounding(multipliers)
        error = error / jnp.where(distance > 0, distance, 1)
        same = jnp.all((face.fixed == search.face.fixed) & (face.values == search.face.values))
        same &= jnp.all(face.normals == search.face.normals)
        # A face that stays, but whose plane was not reached, is none.
        settled = (same & (wrong <= 0.1 * distance)) | (wrong <= 8 * eps * distance)
        return Search(multipliers, moved, levels, error, face, search.tried + 1, settled)

    def unsettled(search):
        return ~search.is_settled & (search.tried < MOST_FACES)

    levels = faces.levels(start)
    moved = stiffness.times(start)
    return jax.lax.while_loop(
        unsettled,
        try_face,
        Search(
            multipliers=start,
            moved=moved,
            levels=levels,
            error=jnp.asarray(jnp.inf, target.dtype),
            face=faces.at(target - moved + steps * start, steps, levels),
            tried=jnp.zeros((), jnp.int32),
            is_settled=jnp.zeros((), bool),
        ),
    )


def on_plane(
    face: Face, target: jax.Array, stiffness: Stiffness
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Multipliers of the entries, those of the sums, and how much errors may grow.

    An error on the plane's right-hand side grows by at most the root of the matrix's condition
    number until it reaches the point; the pivots tell about how large that is.
    """
    size, sums = target.size, len(face.normals)
    running = running_count(face.fixed)
    count = running[-1]
    # Where the fixed entries go, and, the other way around, where they come from.
    places = jnp.where(face.fixed, running - 1, size)
    order = (
        jnp.zeros((size,), jnp.int32).at[places].set(jnp.arange(size, dtype=jnp.int32), mode="drop")
    )
    products = jax.vmap(stiffness.times)(face.normals) if sums else face.normals

    def with_rows(rows):
        def divide(order):
            indices = order[:rows]
            used = jnp.arange(rows, dtype=jnp.int32) < count
            identity = jnp.eye(rows, dtype=target.dtype)
            matrix = jnp.where(used[:, None] & used[None, :], stiffness.block(indices), identity)
            wanted = jnp.where(used, (target - face.values)[indices], 0)
            if sums:
                edge = jnp.where(used[None, :], products[:, indices], 0)
                # A row of zeros has level zero.
                absent = jnp.diag((~jnp.any(face.normals != 0, axis=1)).astype(target.dtype))
                corner = face.normals @ products.T + absent
                matrix = jnp.block([[matrix, edge.T], [edge, corner]])
                wanted = jnp.concatenate([wanted, face.normals @ target - face.totals])
            divided, pivots = _divide(matrix, wanted)
            multipliers = jnp.where(face.fixed, divided[jnp.minimum(places, rows - 1)], 0)
            pivots = jnp.where(used, pivots[:rows], jnp.where(count > 0, pivots[0], 1))
            return multipliers, divided[rows:], jnp.max(pivots) / jnp.min(pivots)

        return divide

    sizes = sorted({min(size, 8 * math.ceil(size * part / 8)) for part in FRACTIONS})
    smallest = jnp.sum(count > jnp.asarray(sizes[:-1], jnp.int32), dtype=jnp.int32)
    multipliers, levels, growth = jax.lax.switch(
        smallest, [with_rows(rows) for rows in sizes], order
    )
    return (multipliers + levels @ face.normals if sums else multipliers), levels, growth


def running_count(flags: jax.Array) -> jax.Array:
    """How many flags are set up to each place, it included.

    By two products with triangles of ones, where ``cumsum`` is a dozen small kernels on a CPU.
    """
    width = 32
    rows = -(-flags.size // width)
    table = jnp.pad(flags, (0, rows * width - flags.size)).reshape(rows, width)
    exact = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    within = exact(table.astype(jnp.float32), np.triu(np.ones((width, width), np.float32)))
    before = exact(np.tri(rows, k=-1, dtype=np.float32), within[:, -1])
    return (within + before[:, None]).ravel()[: flags.size].astype(jnp.int32)


def _divide(matrix: jax.Array, vector: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``matrix^{-1} vector`` by a Cholesky factor, and the factor's diagonal.

    The vector is one more row of the matrix, so that factorizing it is the first of the two
    triangular solves as well.
    """
    # The last pivot has to be positive, and is not used.
    corner = jnp.full((1, 1), jnp.sqrt(jnp.finfo(vector.dtype).max), vector.dtype)
    bordered = jnp.block([[matrix, vector[:, None]], [vector[None, :], corner]])
    factor = jnp.linalg.cholesky(bordered, symmetrize_input=False)
    divided = solve_triangular(factor[:-1, :-1], factor[-1, :-1], trans="T", lower=True)
    return divided, jnp.diagonal(factor)[:-1]
