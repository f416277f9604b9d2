"""The domain of a constraint: the cheapest projection that its set and the norm allow."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _float64, _precision
from optax_varynorm._batches import one_by_one
from optax_varynorm.domains import active_set, newton
from optax_varynorm.domains.constraint import Constraint, kkt_error, length
from optax_varynorm.domains.domain import Domain, Projection, select, stay
from optax_varynorm.domains.metric import (
    Metric,
    local_stiffness,
    metric_of,
    stiffness,
)

# An error of float32 that float64 need not make smaller.
ACCURATE = 1e-3


def domain_of(
    constraint: Callable[[optax.Params], Constraint],
    support: Callable[[optax.Updates], jax.Array],
    contains: Callable[[optax.Params], jax.Array] | None = None,
    find_in: Callable[..., "Found"] | None = None,
) -> Domain:
    r"""The points with :math:`K w \in C`.

    A point inside is returned bit for bit, and costs no more than finding out. Otherwise:

    * a diagonal norm, ``K = I`` and a set with a weighted projection: that one, in its O(d) or
      O(d log d);
    * a polyhedral set in a quadratic norm: ``active_set.solve``. Where that goes round in circles,
      or float32 is not enough, the next one;
    * everything else: ``newton.solve``, O(d^3) for each of a few steps, in quadratic norms in
      float64.

    ``find_in`` replaces this choice where a set has a better one.
    """

    def project(norm, norm_state, point, multipliers=None):
        point = _precision.cast(point, _precision.working_dtype(point))
        flat, unravel = ravel_pytree(point)
        ours = constraint(point)
        start = _first(ours, flat) if multipliers is None else multipliers
        if not flat.size:
            return stay(point, start)

        @one_by_one
        def move_if_outside(norm_state, flat, start):
            metric = metric_of(norm, norm_state, unravel(flat))

            def move(staying):
                found = (find_in or find)(constraint, staying.point, metric, staying.multipliers)
                return Projection(
                    unravel(found.point),
                    unravel(found.moved),
                    unravel(ours.pull_back(found.multipliers)),
                    found.error,
                    found.multipliers,
                )

            staying = stay(unravel(flat), start)
            return jax.lax.cond(ours.holds(flat), lambda staying: staying, move, staying)

        return move_if_outside(norm_state, flat, start)

    def near(point):
        flat, _ = ravel_pytree(_precision.cast(point, _precision.working_dtype(point)))
        ours = constraint(point)
        size = 1 + jnp.abs(flat)
        if ours.rows is not None:
            size = jnp.abs(ours.rows) @ size
        y = ours.apply(flat)
        excess = jnp.abs(y - ours.nearest(y))
        return jnp.all(excess <= _precision.rounding(y.dtype) * (size + jnp.abs(y)))

    def first_multipliers(params):
        dtype = _precision.working_dtype(params)
        if not jax.tree.leaves(params):
            return jnp.zeros((0,), dtype)
        params = _precision.cast(params, dtype)
        return _first(constraint(params), ravel_pytree(params)[0])

    return Domain(project, contains or near, support, constraint, first_multipliers)


def _first(constraint: Constraint, flat: jax.Array) -> jax.Array:
    return jnp.zeros((len(constraint.apply(flat)),), flat.dtype)


class Found(NamedTuple):
    """Attributes:
    multipliers: of the projection.
    point: ``w``.
    error: ``Projection.error``.
    moved: ``v - w``.
    """

    multipliers: jax.Array
    point: jax.Array
    error: jax.Array
    moved: jax.Array


def find(
    constraint: Callable[[optax.Params], Constraint],
    point: optax.Params,
    metric: Metric,
    start: jax.Array,
) -> Found:
    """The projection of ``point``, from the multipliers ``start``."""
    ours, (flat, _) = constraint(point), ravel_pytree(point)
    if metric.inverse is None:
        return _find_in_any_norm(ours, metric, flat, start)
    if metric.is_diagonal and ours.rows is None and ours.nearest_weighted is not None:
        inverse = jnp.broadcast_to(metric.inverse(), flat.shape)
        nearest = ours.nearest_weighted(flat, 1 / inverse)
        moved = flat - nearest
        multipliers = moved / inverse
        error = kkt_error(ours, flat, moved, jnp.mean(inverse) * multipliers)
        return Found(multipliers, nearest, error, moved)

    find_safely = in_wide_numbers(_find_safely)
    if ours.faces is None:
        return find_safely(constraint, point, metric, start)

    has_wider = _float64.is_wider(flat.dtype)
    is_settled, face = _find_face(constraint, point, metric, start)
    is_found = is_settled & (face.error <= ACCURATE) if has_wider else is_settled

    def find_otherwise(face) -> Found:
        best = jnp.where(is_settled, face.multipliers, start)
        safe = find_safely(constraint, point, metric, best)
        if has_wider:
            return select(is_settled & (face.error < safe.error), face, safe)
        is_settled_now, face = _find_face(constraint, point, metric, safe.multipliers)
        return select(is_settled_now, face, safe)

    return jax.lax.cond(is_found, lambda face: face, find_otherwise, face)


def _find_face(constraint, point, metric, start) -> tuple[jax.Array, Found]:
    ours, (flat, _) = constraint(point), ravel_pytree(point)
    b = stiffness(metric, ours, flat.size)
    search = active_set.solve(ours, ours.apply(flat), b, start)
    if ours.rows is None:
        found = Found(search.multipliers, search.point, search.error, search.moved)
        return search.is_settled, found
    moved = metric.to_primal(ours.pull_back(search.multipliers))
    # Three products: K and the inverse and K again, each with its rounding.
    return search.is_settled, Found(search.multipliers, flat - moved, 3 * search.error, moved)


def _find_safely(constraint, point, metric, start) -> Found:
    ours, (flat, _) = constraint(point), ravel_pytree(point)
    b = stiffness(metric, ours, flat.size)
    target, matrix = ours.apply(flat), b.block(None)
    multipliers, y, error = newton.solve(
        ours, target, lambda mu: matrix @ mu, lambda mu: matrix, start
    )
    # By the norm itself too: the matrix of a set with rows has rounding of its own.
    scaled = jnp.mean(b.diagonal) * multipliers
    error = jnp.maximum(error, kkt_error(ours, target, b.times(multipliers), scaled))
    error = growth_of_errors(metric, flat) * error
    if ours.rows is None:
        return Found(multipliers, y, error, target - y)
    moved = metric.to_primal(ours.pull_back(multipliers))
    return Found(multipliers, flat - moved, error, moved)


def in_wide_numbers(find: Callable[..., Found]) -> Callable[..., Found]:
    """A ``find`` for quadratic norms, in float64 where the machine has it.

    Float32 has too few digits for some sets in norms whose condition number is 1e4 or more: there
    rounding alone changes what the matrix does to a vector by some of its length.
    """

    def find_wide(constraint, point, metric, start) -> Found:
        flat, _ = ravel_pytree(point)
        if not _float64.is_wider(flat.dtype):
            return find(constraint, point, metric, start)

        @_float64.in_float64
        def find_and_round(point, state, start) -> Found:
            point, state, start = _widen((point, state, start))
            found = find(constraint, point, metric.at(state, point), start)
            rounded = _precision.cast(found, flat.dtype)
            # What rounding to float32 costs, in the units of the error.
            lost = length(found.point - rounded.point.astype(found.point.dtype))
            smallest = _precision.rounding(flat.dtype) * length(ravel_pytree(point)[0])
            error = found.error + lost / (length(found.moved) + smallest)
            return rounded._replace(error=error.astype(flat.dtype))

        # The norm's state, not its matrix: rounded to float32, that would be another norm's.
        found = find_and_round(point, metric.state, _precision.finite(start))
        ours = constraint(point)
        return found if ours.rows is not None else found._replace(point=ours.nearest(found.point))

    return find_wide


def _widen(tree):
    def widen(leaf):
        return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(widen, tree)


def growth_of_errors(metric: Metric, flat: jax.Array) -> jax.Array:
    """How much an error of the KKT conditions may matter for the point, about.

    At most the root of the condition number of the norm's matrix, as its pivots have it.
    """
    if metric.is_diagonal and metric.inverse is not None:
        pivots = jnp.sqrt(jnp.broadcast_to(metric.inverse(), flat.shape))
    else:
        pivots = jnp.diagonal(jnp.linalg.cholesky(metric.dense(flat.size)))
    growth = jnp.max(pivots) / jnp.min(pivots)
    return jnp.where(jnp.isfinite(growth), growth, jnp.finfo(flat.dtype).eps ** -0.5)


def _find_in_any_norm(constraint: Constraint, metric: Metric, flat: jax.Array, start) -> Found:
    target = constraint.apply(flat)

    def moved(mu):
        return constraint.apply(metric.to_primal(constraint.pull_back(mu)))

    def local(mu):
        return local_stiffness(metric.to_primal, constraint, mu)

    # Away from zero, where the duality map of an l_p norm has no derivative.
    outward = target - constraint.nearest(target)
    begin = jnp.where(jnp.any(start != 0), start, outward)
    multipliers, y, error = newton.solve(constraint, target, moved, local, begin)
    residual = metric.to_primal(constraint.pull_back(multipliers))
    return Found(multipliers, y if constraint.rows is None else flat - residual, error, residual)
