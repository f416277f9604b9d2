"""The domain of a constraint: the cheapest projection that its set and the norm allow."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm._batches import one_by_one
from optax_varynorm.domains import active_set, newton
from optax_varynorm.domains.constraint import Constraint, kkt_error
from optax_varynorm.domains.domain import Domain, Projection, select, stay
from optax_varynorm.domains.metric import (
    Metric,
    local_stiffness,
    metric_of,
    stiffness,
)


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
    * a polyhedral set in a quadratic norm: ``active_set.solve``. Where that goes round in circles
      it starts again from what the next one finds;
    * everything else: ``newton.solve``, O(d^3) for each of a few steps.

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
            metric = metric_of(norm, norm_state, flat, unravel)

            def move(staying):
                found = (find_in or find)(constraint, staying.point, metric, staying.multipliers)
                normal = ours.pull_back(found.multipliers)
                residual = metric.to_primal(normal) if found.moved is None else found.moved
                moved = flat - residual if found.point is None else found.point
                return Projection(
                    unravel(moved),
                    unravel(residual),
                    unravel(normal),
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
    point: where it is known better than by ``v - w``, else ``None``.
    error: ``Projection.error``.
    moved: ``v - w`` where it is known already, else ``None``.
    """

    multipliers: jax.Array
    point: jax.Array | None
    error: jax.Array
    moved: jax.Array | None = None


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
        multipliers = (flat - nearest) / inverse
        scaled = jnp.mean(inverse) * multipliers
        return Found(multipliers, nearest, kkt_error(ours, flat, flat - nearest, scaled))

    b = stiffness(metric, ours, flat.size)
    target = ours.apply(flat)

    def find_safely(start) -> Found:
        matrix = b.block(None)
        multipliers, y, error = newton.solve(
            ours, target, lambda mu: matrix @ mu, lambda mu: matrix, start
        )
        # By the norm itself too: the matrix of a set with rows has rounding of its own.
        moved, scaled = b.times(multipliers), jnp.mean(b.diagonal) * multipliers
        error = jnp.maximum(error, kkt_error(ours, target, moved, scaled))
        return Found(multipliers, y, growth_of_errors(metric, flat) * error, target - y)

    def find_face(start) -> tuple[jax.Array, Found]:
        search, y = active_set.solve(ours, target, b, start)
        # With rows, three products: K and the inverse and K again, each with its rounding.
        error = search.error if ours.rows is None else 3 * search.error
        return search.is_settled, Found(search.multipliers, y, error, search.moved)

    def find_safely_then_face(found) -> Found:
        safe = find_safely(start)
        is_settled, face = find_face(safe.multipliers)
        return select(is_settled, face, safe)

    if ours.faces is None:
        found = find_safely(start)
    else:
        is_settled, found = find_face(start)
        found = jax.lax.cond(is_settled, lambda found: found, find_safely_then_face, found)
    if ours.rows is None:
        return found
    return found._replace(point=None, moved=None)


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
    return Found(multipliers, y if constraint.rows is None else None, error)
