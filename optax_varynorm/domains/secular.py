r"""The secular equation: the projection onto a ball in a quadratic norm.

Outside the ball :math:`\|u\|_2 \le r` the KKT conditions of the projection of ``t`` are
:math:`t - u = \kappa B u` with :math:`\|u\|_2 = r`, for the inverse ``B`` of the norm's matrix:

.. math:: u(\kappa) = (I + \kappa B)^{-1} t, \qquad \|u(\kappa)\|_2 = r.

:math:`1/\|u(\kappa)\|_2` is concave and increasing, so Newton's method on it climbs to the root
from the left without ever passing it, and from the right lands on the left in one step. Each step
is one Cholesky factor (Moré and Sorensen 1983); starting where the last round ended saves most.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

# Newton's method needs 5 to 15 steps; the limit only bounds the loop.
MOST_NEWTON_STEPS = 100


class System(NamedTuple):
    """``B = unit * M``: ``solver(x)`` divides by ``I + x M``, ``times`` multiplies by ``B``."""

    unit: jax.Array
    solver: Callable[[jax.Array], Callable[[jax.Array], jax.Array]]
    times: Callable[[jax.Array], jax.Array]


class Root(NamedTuple):
    multiplier: jax.Array
    point: jax.Array


def by_diagonal(inverse: jax.Array) -> System:
    unit = jnp.mean(inverse)
    scaled = inverse / unit
    return System(
        unit,
        lambda kappa: lambda vector: vector / (1 + kappa * scaled),
        lambda vector: inverse * vector,
    )


def by_matrix(inverse: jax.Array) -> System:
    identity = jnp.eye(len(inverse), dtype=inverse.dtype)
    unit = jnp.mean(jnp.diagonal(inverse))
    scaled = inverse / unit

    def solver(kappa):
        shifted = identity + kappa * scaled
        factor, lower = cho_factor(shifted, lower=True)
        # Where rounding has made B indefinite there is no factor. The diagonal alone then still
        # leads to a point of the ball, whose error is large and seen.
        broken = ~jnp.all(jnp.isfinite(factor))
        instead = jnp.diag(jnp.sqrt(jnp.maximum(jnp.diagonal(shifted), 1)))
        factor = jnp.where(broken, instead, factor)
        return lambda vector: cho_solve((factor, lower), vector)

    return System(unit, solver, lambda vector: inverse @ vector)


def solve(system: System, target: jax.Array, radius: jax.Array, start=0.0) -> Root:
    """The multiplier ``kappa`` and the point ``u``, of length ``radius``."""
    # In units of the target's largest entry, squares neither overflow nor vanish.
    unit = jnp.max(jnp.abs(target), initial=0)
    unit = jnp.where(unit > 0, unit, 1)
    arrow, length_wanted = target / unit, radius / unit

    def climb(carry):
        _, kappa, steps = carry
        divide = system.solver(kappa)
        point = divide(arrow)
        squared_length = jnp.vdot(point, point)
        excess = jnp.sqrt(squared_length) / length_wanted - 1
        slope = jnp.vdot(point, divide(system.times(point) / system.unit))
        climbed = kappa + excess * squared_length / jnp.where(slope > 0, slope, 1)
        return kappa, jnp.maximum(climbed, 0), steps + 1

    def climbing(carry):
        previous, kappa, steps = carry
        higher = kappa > previous * (1 + 4 * jnp.finfo(kappa.dtype).eps)
        return (higher | (steps < 2)) & (steps < MOST_NEWTON_STEPS)

    first = jnp.asarray(start * system.unit, target.dtype)
    _, kappa, _ = jax.lax.while_loop(climbing, climb, (first, first, jnp.int32(0)))
    point = system.solver(kappa)(arrow)
    length = jnp.sqrt(jnp.vdot(point, point))
    return Root(kappa / system.unit, point * (radius / jnp.where(length > 0, length, 1)))
