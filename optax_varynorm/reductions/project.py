"""From a learner in the whole space to one on a convex domain (Algorithm 2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.certificates.bounds import SURROGATE_FACTOR
from optax_varynorm.certificates.certified import CertifiedTransformation, regret_bound_of
from optax_varynorm.domains import Domain
from optax_varynorm.norms import Geometry, dual_norm, require_geometry


class ProjectState(NamedTuple):
    """Attributes:
    unprojected: ``v_t``, what the learner plays.
    projected: ``w_t``, its projection: the exact iterate, in the domain even where
      ``apply_updates`` rounds.
    residual: ``v_t - w_t``, exactly zero where the learner plays inside the domain.
    normal: ``to_dual(v_t - w_t)``, which is normal to the domain at ``w_t``.
    projected_learner_state: state of the learner.
    """

    unprojected: optax.Params
    projected: optax.Params
    residual: optax.Params
    normal: optax.Updates
    projected_learner_state: optax.OptState


def project(
    domain: Domain, learner: optax.GradientTransformation, surrogate: str = "tight"
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
    """
    if surrogate not in ("tight", "paper"):
        raise ValueError(f"`surrogate` must be 'tight' or 'paper', not {surrogate!r}.")
    learner_bound = regret_bound_of(learner)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        inside = domain.contains(params)
        if _arguments.is_known(inside) and not np.all(inside):
            raise ValueError(
                "The starting point lies outside the domain. Start inside, for instance at "
                "`domain.project(lp_norm(), (), params).point`."
            )
        dtype = _precision.working_dtype(params)
        return ProjectState(
            unprojected=params,
            projected=_precision.copy(params, dtype),
            residual=optax.tree.zeros_like(params),
            normal=optax.tree.zeros_like(params),
            projected_learner_state=learner.init(params),
        )

    def update(updates, state, params, *, geometry: Geometry | None = None, **extra_args):
        norm, before, after, _ = require_geometry("project", geometry)
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
            charge = dual_norm(norm, before, updates) / jnp.sqrt(squared_distance)
            charge = jnp.where(outside, charge, 0)
            charged = jax.tree.map(lambda g, n: (g + charge * n) / 2, updates, state.normal)

        learner_step, learner_state = learner.update(
            charged,
            state.projected_learner_state,
            state.unprojected,
            geometry=geometry,
            **extra_args,
        )
        unprojected = optax.apply_updates(state.unprojected, learner_step)
        point, residual, normal = domain.project(norm, after, unprojected)
        return optax.tree.sub(point, params), ProjectState(
            unprojected, point, residual, normal, learner_state
        )

    def regret_bound(state, comparator, norm=None, norm_state=None):
        bound = learner_bound(state.projected_learner_state, comparator, norm, norm_state)
        return SURROGATE_FACTOR[surrogate] * bound

    layer = _precision.in_working_precision("project", init, update)
    return CertifiedTransformation(layer, regret_bound)
