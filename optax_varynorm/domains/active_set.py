r"""The projection onto a polyhedral set by a primal-dual active set method.

On the plane through a face of :math:`C` the projection of ``t`` in the norm whose inverse matrix is
``B`` is linear. With :math:`\mu = \nu + N^\top\lambda`, :math:`\nu` zero but at the fixed entries
``S`` and the rows of ``N`` the normals, :math:`y = t - B\mu` has the values :math:`y_S = b` and
:math:`N y = c` if

.. math::
   B_{SS}\,\nu_S + (B N^\top)_S\,\lambda &= t_S - b, \\
   N B\,\nu + N B N^\top \lambda &= N t - c,

which takes a Cholesky factor of :math:`B_{SS}` and the Schur complement of a row or two. Where the
KKT conditions fail (an entry beyond its bound, a multiplier of the wrong sign) the entry changes
sides, :math:`y_i + \tau_i\mu_i` says to which, and the next face is tried (Hintermüller, Ito and
Kunisch 2002: a semismooth Newton method). From the multipliers of the round before one or two faces
are enough. On ill-conditioned matrices the method may go round in circles, and says so.

Only as many rows and columns as are fixed enter the factor: they are gathered into the smallest of
a few sizes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from optax_varynorm.domains.constraint import Constraint, Face, length
from optax_varynorm.domains.metric import Stiffness

# One to three from a good start, up to twelve from a bad one; more are a circle.
MOST_FACES = 16
# Sizes of the factor, as fractions of the whole.
FRACTIONS = (0.25, 0.5, 0.75, 1.0)


class Search(NamedTuple):
    """Attributes:
    multipliers: on the face tried last.
    moved: ``B`` times the multipliers.
    levels: the multipliers of the sums.
    error: how far the KKT conditions are from holding, in units of the distance moved.
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
    steps = jnp.where(stiffness.diagonal > 0, stiffness.diagonal, 1)
    eps = jnp.finfo(target.dtype).eps
    smallest = jnp.sqrt(eps) * length(target)

    def try_face(search: Search) -> Search:
        multipliers, levels, correction = on_plane(search.face, target, stiffness)
        moved, error_of_moved = jnp.split(
            jax.vmap(stiffness.times)(jnp.stack([multipliers, correction])), 2
        )
        moved, y = moved[0], target - moved[0]
        z = y + steps * multipliers
        face = faces.at(z, steps, levels)
        missed = y - faces.nearest(z, steps, levels)
        missed_totals = face.normals @ y - face.totals
        distance = length(moved) + smallest
        wrong = jnp.sqrt(jnp.vdot(missed, missed) + jnp.vdot(missed_totals, missed_totals))
        same = jnp.all(face.fixed == search.face.fixed) & jnp.all(
            face.values == search.face.values
        )
        same &= jnp.all(face.normals == search.face.normals)
        error = (wrong + length(error_of_moved[0])) / jnp.where(distance > 0, distance, 1)
        return Search(
            multipliers, moved, levels, error, face, search.tried + 1, same | (error <= 8 * eps)
        )

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
    """Multipliers of the entries and of the sums, and the last correction of the former.

    One step of iterative refinement improves the solution of the linear system; its size is about
    the error that rounding leaves.
    """
    size, sums = target.size, len(face.normals)
    count = jnp.sum(face.fixed, dtype=jnp.int32)
    of_normals = jax.vmap(stiffness.times)(face.normals) if sums else face.normals
    right = jnp.concatenate([(target - face.values)[None], of_normals]).T

    def with_rows(rows):
        def divide(fixed, right):
            (indices,) = jnp.nonzero(fixed, size=rows, fill_value=0)
            used = jnp.arange(rows, dtype=jnp.int32) < count
            block = stiffness.block(indices)
            unit = jnp.where(used, 0, 1).astype(block.dtype)
            matrix = jnp.where(used[:, None] & used[None, :], block, 0) + jnp.diag(unit)
            wanted = jnp.where(used[:, None], right[indices], 0)
            factor = (jnp.linalg.cholesky(matrix, symmetrize_input=False), True)
            found = cho_solve(factor, wanted)
            correction = cho_solve(factor, wanted - matrix @ found)
            both = jnp.concatenate([found + correction, correction], axis=1)
            return jnp.zeros((size, both.shape[1]), both.dtype).at[indices].add(both)

        return divide

    sizes = sorted({min(size, 8 * -(-int(size * part) // 8)) for part in FRACTIONS})
    smallest = jnp.sum(count > jnp.asarray(sizes[:-1], jnp.int32), dtype=jnp.int32)
    divided = jax.lax.switch(smallest, [with_rows(rows) for rows in sizes], face.fixed, right)
    found, correction = divided[:, : 1 + sums], divided[:, 1 + sums :]
    if not sums:
        return found[:, 0], face.totals, correction[:, 0]
    # The Schur complement; a row of zeros has level zero.
    schur = face.normals @ of_normals.T - of_normals @ found[:, 1:]
    wanted = face.normals @ target - face.totals - of_normals @ found[:, 0]
    absent = ~jnp.any(face.normals != 0, axis=1)
    schur = schur + jnp.diag(absent.astype(schur.dtype))
    levels = wanted / schur[0] if sums == 1 else jnp.linalg.solve(schur, wanted)
    multipliers = found[:, 0] - found[:, 1:] @ levels + levels @ face.normals
    return multipliers, levels, correction[:, 0] - correction[:, 1:] @ levels
