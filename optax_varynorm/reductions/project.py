"""From a learner in the whole space to one on a convex domain (Algorithm 2)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.certificates.bounds import SURROGATE_FACTOR
from optax_varynorm.certificates.compensated import CompensatedSum
from optax_varynorm.domains import Domain
from optax_varynorm.learners import Certified, displacement, telling
from optax_varynorm.norms import require_geometry

DEFAULT_TOLERANCE = {jnp.dtype(jnp.float32): 1e-3, jnp.dtype(jnp.float64): 1e-6}


class ProjectState(NamedTuple):
    r"""Attributes:
    projected: ``w_t``, its projection: the exact iterate, in the domain even where
      ``apply_updates`` rounds.
    residual: ``v_t - w_t``, where the learner plays ``v_t``; exactly zero inside the domain.
    normal: ``to_dual(v_t - w_t)``, which is normal to the domain at ``w_t``.
    projected_origin: ``w_1``, where the parameters started.
    surcharge: what the learner was charged, times the surrogate's factor, beyond what its
      gradients cost at the points played: the sum of
      :math:`c \langle\tilde g_t, v_t - w_1\rangle - \langle g_t, w_t - w_1\rangle`.
    surcharge_gradient: the sum of :math:`c\,\tilde g_t - g_t`.
    projected_learner_state: state of the learner.
    projection_multipliers: where the domain's solver ended, from which it starts next.
    largest_projection_error: of all rounds (``Projection.error``).
    inaccurate_projections: number of rounds whose projection had an error above the tolerance. Its
      point was played all the same: the nearest that the solver found.
    """

    projected: optax.Params
    residual: optax.Params
    normal: optax.Updates
    projected_origin: optax.Params
    surcharge: CompensatedSum
    surcharge_gradient: optax.Updates
    projected_learner_state: optax.OptState
    projection_multipliers: Any
    largest_projection_error: jax.Array
    inaccurate_projections: jax.Array


def project(
    domain: Domain,
    learner: optax.GradientTransformation,
    surrogate: str = "tight",
    tolerance: float | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""``alg:varynorm``: play the projection of the learner's point, charge it for leaving.

    With :math:`w_t = \arg\min_{w\in W}\|v_t - w\|_{t-1}` and
    :math:`n = (v_t - w_t)/\|v_t-w_t\|_{t-1}`, the learner receives, instead of :math:`g_t`,

    * ``surrogate="paper"``: :math:`\tfrac12(g_t + \|g_t\|_{t-1,\star}\,\mathrm{to\_dual}(n))`, a
      subgradient of Algorithm 2's loss. Then
      :math:`\langle g_t, w_t - u\rangle \le 2\langle \hat g_t, v_t - u\rangle` on the domain.
    * ``surrogate="tight"``: :math:`g_t - \langle g_t, n\rangle\,\mathrm{to\_dual}(n)` where that
      inner product is negative, else :math:`g_t`. Then
      :math:`\langle g_t, w_t - u\rangle \le \langle \tilde g_t, v_t - u\rangle`, without the 2, and
      :math:`\|\tilde g_t\|_{t-1,\star} \le \|g_t\|_{t-1,\star}` if the norm is quadratic.

    Where the learner plays inside the domain there is no normal, and its term is left out.
    Needs ``geometry``, which ``with_varying_norm`` provides. Start inside the domain.

    A domain without a closed form is projected on by an iterative solver, to rounding wherever it
    can. ``Projection.error`` says how far it came. A point whose error exceeds ``tolerance`` is
    played all the same, and counted in ``inaccurate_projections``: the state never hides it.

    Args:
      domain: the convex set.
      learner: plays in the whole space.
      surrogate: ``"tight"`` or ``"paper"``.
      tolerance: the largest error of a projection that is not counted; 1e-6 in float64 and 1e-3 in
        float32 if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.project(vn.simplex(), vn.scale_by_coin_betting(vn.ftrl_step()))
    >>> optimizer = vn.with_varying_norm(vn.full_matrix_norm(None), learner)
    >>> state = optimizer.init(jnp.full(4, 0.25))
    """
    if surrogate not in ("tight", "paper"):
        raise ValueError(f"`surrogate` must be 'tight' or 'paper', not {surrogate!r}.")
    factor = SURROGATE_FACTOR[surrogate]
    learner = telling(learner)

    def init(params):
        inside = domain.contains(params) if jax.tree.leaves(params) else True
        if _arguments.is_known(inside) and not np.all(inside):
            raise ValueError(
                "The starting point lies outside the domain. Start inside, for instance at "
                "`domain.project(lp_norm(), (), params).point`."
            )
        dtype = _precision.working_dtype(params)
        return ProjectState(
            projected=_precision.copy(params, dtype),
            residual=optax.tree.zeros_like(params),
            normal=optax.tree.zeros_like(params),
            projected_origin=_precision.copy(params, dtype),
            surcharge=CompensatedSum.zeros_like(jnp.zeros((), dtype)),
            surcharge_gradient=optax.tree.zeros_like(params),
            projected_learner_state=learner.init(params),
            projection_multipliers=domain.first_multipliers(params),
            largest_projection_error=jnp.zeros((), dtype),
            inaccurate_projections=jnp.zeros((), jnp.int32),
        )

    def update(updates, state, params, *, precision, geometry=None, **extra_args):
        geometry = require_geometry("project", geometry)
        norm, after = geometry.norm, geometry.after
        if surrogate == "tight" and not norm.is_quadratic:
            raise ValueError(
                "`surrogate='tight'` keeps gradients short in quadratic norms only. "
                "Use `project(domain, learner, surrogate='paper')` with this norm."
            )
        squared_distance = _precision.inner(state.normal, state.residual)
        outside = squared_distance > 0
        squared_distance = jnp.where(outside, squared_distance, 1)
        if surrogate == "tight":
            gain = _precision.inner(updates, state.residual)
            charge = jnp.where(outside & (gain < 0), -gain / squared_distance, 0)
            charged = optax.tree.add_scale(updates, charge, state.normal)
        else:
            length = _precision.root(geometry.squared_dual_norm_of(updates))
            charge = length / jnp.sqrt(squared_distance)
            charge = jnp.where(outside, charge, 0)
            charged = jax.tree.map(lambda g, n: (g + charge * n) / 2, updates, state.normal)

        then, now = geometry.sides()
        moved = displacement(learner, state.projected_learner_state, params, *then)
        _, learner_state = learner.update(
            charged,
            state.projected_learner_state,
            optax.tree.add(state.projected_origin, moved),
            geometry=geometry,
            **extra_args,
        )
        unprojected = optax.tree.add(
            state.projected_origin, displacement(learner, learner_state, params, *now)
        )
        cost = _precision.inner(updates, optax.tree.sub(state.projected, state.projected_origin))
        surcharge = factor * _precision.inner(charged, moved) - cost
        # Domains with a closed form have no multipliers, and need not know the word.
        multipliers = state.projection_multipliers
        start = (multipliers,) if jax.tree.leaves(multipliers) else ()
        projection = domain.project(norm, after, unprojected, *start)
        error = jnp.asarray(projection.error, squared_distance.dtype)
        allowed = DEFAULT_TOLERANCE[error.dtype] if tolerance is None else tolerance
        # Not `error > allowed`: an error that is no number counts.
        inaccurate = ~(error <= allowed)
        step = _precision.step_to(projection.point, state.projected, params, precision)
        return step, ProjectState(
            projected=projection.point,
            residual=projection.residual,
            normal=projection.normal,
            projected_origin=state.projected_origin,
            surcharge=state.surcharge.plus(surcharge),
            surcharge_gradient=jax.tree.map(
                lambda total, new, old: total + (factor * new - old),
                state.surcharge_gradient,
                charged,
                updates,
            ),
            projected_learner_state=learner_state,
            projection_multipliers=projection.multipliers,
            largest_projection_error=jnp.maximum(state.largest_projection_error, error),
            inaccurate_projections=state.inaccurate_projections + inaccurate.astype(jnp.int32),
        )

    def slack(state, comparator, norm=None, norm_state=None):
        # <g, w - u> <= c <surrogate, v - u>: what the surrogates cost beyond the gradients, and
        # what the learner's theorem still allows of them.
        surcharge = state.surcharge.value() - _precision.inner(state.surcharge_gradient, comparator)
        digits = _precision.inner_rounding(state.surcharge_gradient, comparator)
        unused = learner.slack(state.projected_learner_state, comparator, norm, norm_state)
        return surcharge + digits + factor * unused

    layer = _precision.in_working_precision("project", init, update, knows_its_place=True)
    return Certified(layer, slack)
