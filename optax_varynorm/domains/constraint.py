r"""A convex set as :math:`K w \in C`, where ``C`` has an easy Euclidean projection.

Everything is flat: ``w`` is the vector of all coordinates in tree order, ``K`` a matrix or the
identity. A product stacks sets side by side, an intersection on top of each other; both are again
of this form.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg


class Face(NamedTuple):
    """The points of a face, or of the plane through it, by equations.

    Attributes:
      fixed: which entries have one value there.
      values: those values, zero elsewhere.
      normals: rows with zeros at the fixed entries, whose products with the point are given; a row
        of zeros says nothing.
      totals: these products.
    """

    fixed: jax.Array
    values: jax.Array
    normals: jax.Array
    totals: jax.Array


class Faces(NamedTuple):
    r"""A polyhedral set: entries with bounds of their own, and sums of (absolute) entries.

    A sum has a multiplier, the level :math:`\lambda`, beside those of the entries. With it the KKT
    conditions of a projection are one for each entry, :math:`y_i = \Pi_i(y_i + \tau_i \mu_i)`,
    whatever the :math:`\tau_i > 0`.

    Attributes:
      levels: ``multipliers -> levels``, one a sum, from the multipliers of a solution.
      nearest: ``(z, steps, levels)``, the vector of :math:`\Pi_i(z_i)`.
      at: the same arguments; the ``Face`` of which these are points.
      repair: a point of the set from one that misses it by rounding.
    """

    levels: Callable[[jax.Array], jax.Array]
    nearest: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    at: Callable[[jax.Array, jax.Array, jax.Array], Face]
    repair: Callable[[jax.Array], jax.Array]


class Constraint(NamedTuple):
    r"""Attributes:
    nearest: :math:`\Pi(z) = \arg\min_{y\in C}\|z - y\|_2`.
    slope: ``z -> (X -> J X)``, products with an element ``J`` of the generalized Jacobian of
      ``nearest`` at ``z``; ``X`` has vectors as columns.
    inside: ``(z, slack) -> bool``, whether ``z`` needs no projection. ``slack`` is the rounding of
      each entry of ``z``; a set whose border needs none, such as a box, ignores it.
    rows: ``K``, or ``None`` for the identity.
    nearest_weighted: ``(z, weights)``, the nearest point of ``C`` in
      :math:`\sum_i a_i (z_i - y_i)^2`, where that is as easy; ``None`` where it is not.
    faces: of a polyhedral set; ``None`` for others.
    """

    nearest: Callable[[jax.Array], jax.Array]
    slope: Callable[[jax.Array], Callable[[jax.Array], jax.Array]]
    inside: Callable[[jax.Array, jax.Array], jax.Array]
    rows: jax.Array | None = None
    nearest_weighted: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    faces: Faces | None = None

    def apply(self, flat: jax.Array) -> jax.Array:
        """``K w``."""
        return flat if self.rows is None else self.rows @ flat

    def pull_back(self, multipliers: jax.Array) -> jax.Array:
        """``K^T`` times multipliers."""
        return multipliers if self.rows is None else multipliers @ self.rows

    def holds(self, flat: jax.Array) -> jax.Array:
        """Whether ``w`` needs no projection, rounding of ``K w`` aside."""
        size = jnp.abs(flat) if self.rows is None else jnp.abs(self.rows) @ jnp.abs(flat)
        return self.inside(self.apply(flat), slack_of(size))


def slack_of(size: jax.Array) -> jax.Array:
    """About the rounding of sums of numbers of this size."""
    return 8 * jnp.finfo(size.dtype).eps * size


def kkt_error(
    constraint: Constraint, target: jax.Array, moved: jax.Array, scaled_multipliers: jax.Array
) -> jax.Array:
    r"""How far ``y = target - moved`` is from solving the projection of ``target = K v``.

    ``y`` is in ``C`` with the multipliers :math:`\mu` as a normal there exactly if
    :math:`y = \Pi(y + \tau\mu)`, for any :math:`\tau > 0`. The error is the length of the
    difference, in units of the distance :math:`\|K(v - w)\|_2` (not less than rounding lets see).
    """
    y = target - moved
    difference = length(y - constraint.nearest(y + scaled_multipliers))
    return relative_error(difference, length(moved), length(target))


def relative_error(difference: jax.Array, distance: jax.Array, size: jax.Array) -> jax.Array:
    """In units of the distance moved, not less than rounding lets see of numbers of this size."""
    distance = distance + jnp.sqrt(jnp.finfo(size.dtype).eps) * size
    return difference / jnp.where(distance > 0, distance, 1)


def length(vector: jax.Array) -> jax.Array:
    """The l_2 norm, without overflow of the squares, with derivative 0 at 0."""
    largest = jnp.max(jnp.abs(vector), initial=0)
    unit = jnp.where(largest > 0, largest, 1)
    square = jnp.sum((vector / unit) ** 2)
    is_zero = square == 0
    return jnp.where(is_zero, 0, unit * jnp.sqrt(jnp.where(is_zero, 1, square)))


def side_by_side(parts: Sequence[Constraint], sizes: Sequence[int]) -> Constraint:
    """Each constraint on its own slice of the coordinates."""
    rows = None
    if any(part.rows is not None for part in parts):
        dtype = next(part.rows.dtype for part in parts if part.rows is not None)
        blocks = [_rows(part, size, dtype) for part, size in zip(parts, sizes, strict=True)]
        rows = jax.scipy.linalg.block_diag(*blocks)
    heights = [
        size if part.rows is None else len(part.rows)
        for part, size in zip(parts, sizes, strict=True)
    ]
    return _stack(parts, heights, rows)


def all_at_once(parts: Sequence[Constraint], flat: jax.Array) -> Constraint:
    """All constraints on the same coordinates, those of ``flat``."""
    blocks = [_rows(part, flat.size, flat.dtype) for part in parts]
    return _stack(parts, [len(block) for block in blocks], jnp.concatenate(blocks))


def _rows(part: Constraint, size: int, dtype) -> jax.Array:
    return jnp.eye(size, dtype=dtype) if part.rows is None else part.rows


def _stack(parts, heights, rows) -> Constraint:
    cuts = [sum(heights[:i]) for i in range(1, len(heights))]

    def joined(call):
        """Apply ``call(part, slices...)`` to each part's slices and put the results together."""

        def function(*vectors):
            slices = zip(*(jnp.split(vector, cuts) for vector in vectors), strict=True)
            return jnp.concatenate([call(part, *s) for part, s in zip(parts, slices, strict=True)])

        return function

    def slope(z):
        products = [
            part.slope(piece) for part, piece in zip(parts, jnp.split(z, cuts), strict=True)
        ]
        return lambda columns: jnp.concatenate(
            [times(x) for times, x in zip(products, jnp.split(columns, cuts), strict=True)]
        )

    def inside(z, slack):
        pieces = zip(parts, jnp.split(z, cuts), jnp.split(slack, cuts), strict=True)
        return jnp.all(jnp.stack([part.inside(y, s) for part, y, s in pieces]))

    weighted = None
    if rows is None and all(part.nearest_weighted is not None for part in parts):
        weighted = joined(lambda part, z, a: part.nearest_weighted(z, a))
    nearest = joined(lambda part, z: part.nearest(z))
    return Constraint(nearest, slope, inside, rows, weighted, _stack_faces(parts, heights))


def _stack_faces(parts, heights) -> Faces | None:
    members = [part.faces for part in parts if part.faces is not None]
    if len(members) < len(parts):
        return None
    cuts = [sum(heights[:i]) for i in range(1, len(heights))]
    shapes = [
        jax.eval_shape(faces.levels, jax.ShapeDtypeStruct((height,), jnp.float32)).shape[0]
        for faces, height in zip(members, heights, strict=True)
    ]
    level_cuts = [sum(shapes[:i]) for i in range(1, len(shapes))]

    def each(call, z, steps, levels):
        slices = (jnp.split(z, cuts), jnp.split(steps, cuts), jnp.split(levels, level_cuts))
        return [call(faces, *piece) for faces, *piece in zip(members, *slices, strict=True)]

    def along(call, vector):
        pieces = zip(members, jnp.split(vector, cuts), strict=True)
        return jnp.concatenate([call(faces, piece) for faces, piece in pieces])

    def at(z, steps, levels):
        pieces = each(lambda faces, *piece: faces.at(*piece), z, steps, levels)
        return Face(
            fixed=jnp.concatenate([face.fixed for face in pieces]),
            values=jnp.concatenate([face.values for face in pieces]),
            normals=jax.scipy.linalg.block_diag(*[face.normals for face in pieces]),
            totals=jnp.concatenate([face.totals for face in pieces]),
        )

    return Faces(
        levels=lambda multipliers: along(lambda faces, mu: faces.levels(mu), multipliers),
        nearest=lambda *arguments: jnp.concatenate(
            each(lambda faces, *piece: faces.nearest(*piece), *arguments)
        ),
        at=at,
        repair=lambda y: along(lambda faces, piece: faces.repair(piece), y),
    )
