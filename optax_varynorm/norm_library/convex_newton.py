"""A damped Newton method for duality maps without a closed form."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

MOST_STEPS = 100
# Lengths of the steps that the line search compares.
STEP_LENGTHS = 0.5 ** np.arange(16.0)
# So many steps that lower the value by nothing but rounding end the search.
PATIENCE = 3


class Measure(NamedTuple):
    """Attributes:
    value: of the function.
    slope: its gradient.
    error: how far the slope is from zero, in the caller's units.
    """

    value: jax.Array
    slope: jax.Array
    error: jax.Array


class Search(NamedTuple):
    """Attributes:
    point: where the search is.
    best: the point with the smallest error.
    error: that error.
    steps: how many there were.
    failures: how many in a row did not lower the value.
    """

    point: jax.Array
    best: jax.Array
    error: jax.Array
    steps: jax.Array
    failures: jax.Array


def solve(measure: Callable[[jax.Array], Measure], start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``minimize``, with the derivatives of the equation that the minimizer solves."""
    return jax.lax.custom_root(
        lambda point: measure(point).slope,
        start,
        lambda _, first: minimize(measure, first),
        solve_linear,
        has_aux=True,
    )


def minimize(
    measure: Callable[[jax.Array], Measure],
    start: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The minimizer of a convex function of a flat vector, and its error.

    Newton's step, or the negative gradient where that is no number or leads uphill, at the best of
    16 lengths, the one of the least value; or of the least error, once rounding hides what a step
    does to the value. It ends when the error is near rounding, after a hundred steps, or when steps
    stop to matter, with the point of the smallest error.
    """
    dtype = start.dtype
    eps = float(jnp.finfo(dtype).eps)
    enough = eps**0.8
    # The length zero is that of the point itself.
    lengths = jnp.asarray([*STEP_LENGTHS, 0.0], dtype)

    def slope_of(point):
        slope = measure(point).slope
        return slope, slope

    def newton_step(point):
        curvature, slope = jax.jacfwd(slope_of, has_aux=True)(point)
        # Where the curvature is infinite or no number the coordinate stays, for this step.
        known = jnp.all(jnp.isfinite(curvature), axis=1) & jnp.isfinite(slope)
        curvature = jnp.where(known[:, None] & known[None, :], curvature, 0)
        curvature = (curvature + curvature.T) / 2
        largest = jnp.max(jnp.abs(jnp.diagonal(curvature)))
        unit = jnp.where(largest > 0, largest, 1)
        slope = jnp.where(known, slope, 0)
        ridge = jnp.where(known, eps * unit, unit)
        step = -jnp.linalg.solve(curvature + jnp.diag(ridge), slope)
        descends = jnp.all(jnp.isfinite(step)) & (jnp.vdot(step, slope) < 0)
        return jnp.where(descends, step, -slope / unit)

    def iterate(search):
        step = newton_step(search.point)
        candidates = search.point[None] + lengths[:, None] * step[None]
        values, _, errors = jax.vmap(measure)(candidates)
        values, errors = (jnp.where(jnp.isnan(a), jnp.inf, a) for a in (values, errors))
        lowers = jnp.min(values) < values[-1] - 16 * eps * jnp.abs(values[-1])
        chosen = jnp.where(lowers, jnp.argmin(values), jnp.argmin(errors))
        point, error = candidates[chosen], errors[chosen]
        idle = ~lowers & ~(error < search.error / 2)
        return Search(
            point=point,
            best=jnp.where(error < search.error, point, search.best),
            error=jnp.minimum(error, search.error),
            steps=search.steps + 1,
            failures=jnp.where(idle, search.failures + 1, 0),
        )

    def unfinished(search):
        return (search.error > enough) & (search.steps < MOST_STEPS) & (search.failures < PATIENCE)

    error = measure(start).error
    none = jnp.zeros((), jnp.int32)
    found = jax.lax.while_loop(
        unfinished,
        iterate,
        Search(start, start, jnp.where(jnp.isnan(error), jnp.inf, error), none, none),
    )
    return found.best, found.error


def solve_linear(function: Callable[[jax.Array], jax.Array], right: jax.Array) -> jax.Array:
    """The flat vector that a linear function maps to ``right``."""
    matrix = jax.jacfwd(function)(jnp.zeros_like(right))
    ridge = jnp.finfo(right.dtype).eps * jnp.max(jnp.abs(jnp.diagonal(matrix)))
    return jnp.linalg.solve(matrix + ridge * jnp.eye(right.size, dtype=right.dtype), right)
