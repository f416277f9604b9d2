r"""The projection onto :math:`\{w : K w \in C\}` by a semismooth Newton method.

With multipliers :math:`\mu`, :math:`w = v - \mathrm{to\_primal}(K^\top\mu)` and
:math:`y(\mu) = K w`, the KKT conditions of the projection are :math:`y = \Pi(y + \tau\mu)`, for any
:math:`\tau > 0`. Only the inverse of a quadratic norm appears, as
:math:`y(\mu) = K v - B\mu,\ B = K A^{-1} K^\top`.

Two Newton steps work together in each iteration:

* **A safe one**, on the augmented Lagrangian

  .. math:: \phi(\mu) = \tfrac12\|K^\top\mu\|_\star^2 + \tfrac s2\,\mathrm{dist}^2(z, C),
            \qquad z = y(\mu) + \lambda/s.

  As a function of ``w`` it is convex with a Lipschitz gradient that vanishes where
  :math:`\mu = s(z - \Pi(z))`. The Newton step
  :math:`(I + s(I - J)B)\,\delta = s(z-\Pi(z)) - \mu`, with :math:`J \in \partial\Pi(z)`, is a
  descent direction, so a line search makes it converge from anywhere. Then
  :math:`\lambda \leftarrow s(z - \Pi(z))`, and ``s`` grows (Li, Sun and Toh 2018; Hermans,
  Themelis and Patrinos 2019).
* **A bold one**, on the KKT conditions themselves, linearized at the pair
  :math:`y_c = \Pi(z),\ \mu_c = s(z - \Pi(z))` with :math:`J \in \partial\Pi(y_c + \tau\mu_c)`:

  .. math:: [(I - J)B + \tau J]\,\mu = (I - J)K v - y_c + J(y_c + \tau\mu_c).

  Once the face of ``C`` is the right one this is the solution, to rounding, without the loss of
  digits a large ``s`` brings. The best of these points is the result.

The multipliers of the last round usually know the face: then the first bold step ends the search.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optax_varynorm.domains.constraint import Constraint, kkt_error

MOST_STEPS = 100
# Lengths of the steps that the line search compares.
STEP_LENGTHS = 0.5 ** np.arange(14.0)
# The penalty s: the first, its growth, and the last.
FIRST_PENALTY, PENALTY_GROWTH = 1e2, 10.0
LAST_PENALTY = {jnp.dtype(jnp.float32): 1e6, jnp.dtype(jnp.float64): 1e9}
# So many multiplier updates at the last penalty that do not halve the error end the search.
PATIENCE = 3


class Search(NamedTuple):
    """Attributes:
    multipliers: of the safe step, ``mu``.
    center: ``lambda``.
    penalty: ``s``.
    best: multipliers of the smallest error.
    error: that error.
    steps: how many there were.
    failures: multiplier updates since the error last halved.
    """

    multipliers: jax.Array
    center: jax.Array
    penalty: jax.Array
    best: jax.Array
    error: jax.Array
    steps: jax.Array
    failures: jax.Array


def solve(
    constraint: Constraint,
    target: jax.Array,
    moved: Callable[[jax.Array], jax.Array],
    stiffness: Callable[[jax.Array], jax.Array],
    multipliers: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    r"""Multipliers of the projection, the point ``y`` of ``C`` and its ``kkt_error``.

    Args:
      constraint: the set.
      target: ``K v``.
      moved: :math:`\mu \mapsto K\,\mathrm{to\_primal}(K^\top\mu)`.
      stiffness: its derivative ``B`` at ``mu``, a matrix.
      multipliers: where to start.
    """
    dtype = target.dtype
    eps = float(jnp.finfo(dtype).eps)
    enough = eps**0.7
    identity = jnp.eye(target.size, dtype=dtype)
    last_penalty = LAST_PENALTY[jnp.dtype(dtype)]
    ridge = 10 * eps
    lengths = jnp.asarray(STEP_LENGTHS, dtype)

    # In units that make tau, the mean of B's diagonal, one; duality maps are homogeneous.
    trace = jnp.trace(stiffness(multipliers))
    unit = jnp.where(trace > 0, trace, 1) / target.size

    def shift(mu):
        return moved(mu) / unit

    def slope_of_shift(mu):
        return stiffness(mu) / unit

    def error_of(candidate):
        error = kkt_error(constraint, target, shift(candidate), candidate)
        return jnp.where(jnp.isnan(error), jnp.inf, error)

    def bold_step(y, mu):
        z = y + mu
        times = constraint.slope(z)
        b = slope_of_shift(mu)
        # The ridge, around mu, keeps the system regular where constraints depend on each other.
        aim = (target - shift(mu) + b @ mu + ridge * mu)[:, None]
        regular = b + ridge * identity
        matrix = regular - times(regular) + times(identity)
        right = aim - times(aim) + times(z[:, None]) - y[:, None]
        return jnp.linalg.solve(matrix, right)[:, 0]

    def safe_step(mu, center, penalty):
        def merit(candidate):
            step = shift(candidate)
            z = target - step + center / penalty
            far = z - constraint.nearest(z)
            return (jnp.vdot(candidate, step) + penalty * jnp.vdot(far, far)) / 2

        z = target - shift(mu) + center / penalty
        b = slope_of_shift(mu)
        matrix = identity / penalty + b - constraint.slope(z)(b)
        step = jnp.linalg.solve(matrix, z - constraint.nearest(z) - mu / penalty)
        step = jnp.where(jnp.isfinite(step), step, 0)
        merits = jax.vmap(lambda length: merit(mu + length * step))(lengths)
        full = merits[0] <= merit(mu) * (1 + 4 * eps)
        return mu + jnp.where(full, 1, lengths[jnp.argmin(merits)]) * step

    def iterate(search):
        penalty = search.penalty
        mu = safe_step(search.multipliers, search.center, penalty)
        z = target - shift(mu) + search.center / penalty
        y = constraint.nearest(z)
        far = z - y
        remaining = jnp.linalg.norm(mu / penalty - far)
        progress = jnp.linalg.norm(far - search.center / penalty)
        settled = remaining <= 0.1 * progress + 4 * eps * jnp.linalg.norm(z)

        candidate = bold_step(y, penalty * far)
        error = error_of(candidate)
        at_last = settled & (penalty >= 0.99 * last_penalty)
        return Search(
            multipliers=mu,
            center=jnp.where(settled, penalty * far, search.center),
            penalty=jnp.where(
                settled, jnp.minimum(PENALTY_GROWTH * penalty, last_penalty), penalty
            ),
            best=jnp.where(error < search.error, candidate, search.best),
            error=jnp.minimum(error, search.error),
            steps=search.steps + 1,
            failures=jnp.where(
                error < search.error / 2, 0, search.failures + at_last.astype(jnp.int32)
            ),
        )

    def unfinished(search):
        return (search.error > enough) & (search.steps < MOST_STEPS) & (search.failures < PATIENCE)

    known = unit * multipliers
    guess = constraint.nearest(target - shift(known) + known)
    first = bold_step(guess, known)
    first = jnp.where(jnp.isfinite(first), first, known)
    found = jax.lax.while_loop(
        unfinished,
        iterate,
        Search(
            multipliers=known,
            center=known,
            penalty=jnp.asarray(FIRST_PENALTY, dtype),
            best=first,
            error=error_of(first),
            steps=jnp.zeros((), jnp.int32),
            failures=jnp.zeros((), jnp.int32),
        ),
    )
    y = constraint.nearest(target - shift(found.best))
    return found.best / unit, y, found.error
