"""The direction learner: follow the regularized leader inside the current unit ball."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.norms import Geometry, require_geometry


class FTRLState(NamedTuple):
    """Attributes:
    gradient_sum: ``theta_t``, the sum of the gradients received.
    squared_dual_norm_sum: ``S_t``, the sum of their squared dual norms, each in the norm that
      was current when its point was played.
    """

    gradient_sum: optax.Updates
    squared_dual_norm_sum: jax.Array


def ftrl_step() -> optax.GradientTransformationExtraArgs:
    r"""Follow the regularized leader inside the current unit ball around zero.

    ``eqn:ftrl`` with the constant of Algorithm 1 (``alg:1dred``):

    .. math::
       x_{t+1} = \arg\min_{\|x\|_t\le 1}
                 \tfrac{1}{\sqrt{2\sigma}}\|x\|_t^2 \sqrt{1+S_t} + \langle\theta_t, x\rangle,
       \qquad S_t = \sum_{i \le t} \|g_i\|_{i-1,\star}^2.

    Among points of one length, :math:`\langle\theta_t, x\rangle` is least along
    ``-to_primal(theta)``, a vector of length :math:`\|\theta_t\|_{t,\star}`. On that ray the
    objective is a scalar quadratic, so the minimizer is the ray's point at its vertex, or where
    the ray leaves the ball:

    .. math::
       x_{t+1} = -\mathrm{to\_primal}(\theta_t)
         \min\Big(\frac{\sqrt{\sigma/2}}{\sqrt{1+S_t}}, \frac{1}{\|\theta_t\|_{t,\star}}\Big).

    Needs ``geometry``, which ``with_varying_norm`` provides.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.with_varying_norm(vn.lp_norm(), vn.ftrl_step())
    >>> state = learner.init(jnp.zeros(2))
    """

    def init(params):
        dtype = _precision.working_dtype(params)
        return FTRLState(optax.tree.zeros_like(params), jnp.zeros((), dtype))

    def update(updates, state, params, *, geometry: Geometry | None = None, **extra_args):
        del extra_args
        factor, leader, state = follow_leader(updates, state, geometry)
        return optax.tree.sub(optax.tree.scale(factor, leader), params), state

    return FollowTheLeader(*_precision.in_working_precision("ftrl_step", init, update))


class FollowTheLeader(optax.GradientTransformationExtraArgs):
    """The type of ``ftrl_step()``, by which a layer around it knows where its points come from."""


def follow_leader(
    updates, state: FTRLState, geometry: Geometry | None
) -> tuple[jax.Array, optax.Params, FTRLState]:
    """The next point of ``ftrl_step`` as a number and what it multiplies, and the next state."""
    geometry = require_geometry("ftrl_step", geometry)
    gradient_sum = optax.tree.add(state.gradient_sum, updates)
    squared_sum = state.squared_dual_norm_sum + geometry.squared_dual_norm(updates)

    leader = geometry.leader(updates, gradient_sum)
    squared_length = geometry.squared_length_of_leader(gradient_sum, leader)
    vertex = jnp.sqrt(jnp.asarray(geometry.norm.strong_convexity, squared_sum.dtype) / 2)
    step = jnp.minimum(
        vertex / jnp.sqrt(1 + squared_sum),
        jax.lax.rsqrt(jnp.where(squared_length > 0, squared_length, 1)),
    )
    return -step, leader, FTRLState(gradient_sum, squared_sum)
