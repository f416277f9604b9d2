"""The direction learner: follow the regularized leader inside the current unit ball."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.learners import (
    Certified,
    DirectionBound,
    NoRegretBoundError,
)
from optax_varynorm.norms import Geometry, primal_norm, require_geometry


class FTRLState(NamedTuple):
    """Attributes:
    direction: ``x_t``, unless it is computed again instead.
    gradient_sum: ``theta_t``, the sum of the gradients received.
    squared_dual_norm_sum: ``S_t``, the sum of their squared dual norms, each in the norm that
      was current when its point was played.
    sum_rounding: what rounding may have done to ``theta`` and to the coins so far, in dual norm.
    leader_factor: what ``-to_primal(theta)`` is multiplied by to compute the direction again.
    """

    direction: optax.Params | None
    gradient_sum: optax.Updates
    squared_dual_norm_sum: jax.Array
    sum_rounding: jax.Array
    leader_factor: jax.Array | None = None


def ftrl_step(keep_direction: bool = True) -> optax.GradientTransformationExtraArgs:
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

    The unit ball is a place, so the update is the difference from ``params`` to that point. Needs
    ``geometry``, which ``with_varying_norm`` provides.

    Args:
      keep_direction: ``False`` computes :math:`x_t` from :math:`\theta_{t-1}` again instead of
        keeping it: an array less, for norms whose ``to_primal`` is elementwise.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.with_varying_norm(vn.lp_norm(), vn.ftrl_step())
    >>> state = learner.init(jnp.zeros(2))
    """

    def init(params):
        dtype = _precision.working_dtype(params)
        return FTRLState(
            direction=optax.tree.zeros_like(params) if keep_direction else None,
            gradient_sum=optax.tree.zeros_like(params),
            squared_dual_norm_sum=jnp.zeros((), dtype),
            sum_rounding=jnp.zeros((), dtype),
            leader_factor=None if keep_direction else jnp.zeros((), dtype),
        )

    def update(updates, state, params, *, geometry: Geometry | None = None, **extra_args):
        del extra_args
        geometry = require_geometry("ftrl_step", geometry)
        norm, after = geometry.norm, geometry.after
        gradient_sum = optax.tree.add(state.gradient_sum, updates)
        square = geometry.squared_dual_norm_of(updates)
        squared_sum = state.squared_dual_norm_sum + square

        leader = norm.to_primal(after, gradient_sum)
        squared_length = jnp.maximum(_precision.inner(gradient_sum, leader), 0)
        vertex = jnp.sqrt(jnp.asarray(sigma_of(norm), squared_sum.dtype) / 2)
        is_known = squared_length > 0  # else the leader is zero, or rounding has eaten it
        factor = jnp.minimum(
            vertex * jax.lax.rsqrt(1 + squared_sum),
            jax.lax.rsqrt(jnp.where(is_known, squared_length, 1)),
        )
        factor = jnp.where(is_known, factor, 0)
        direction = optax.tree.scale(-factor, leader)
        # A sum is rounded where something is added to it, and so are the few sums of a coin.
        ulp = jnp.where(square > 0, jnp.finfo(square.dtype).eps, 0)
        rounding = state.sum_rounding + ulp * (4 + jnp.sqrt(squared_length))
        new = FTRLState(
            direction if keep_direction else None,
            gradient_sum,
            squared_sum,
            rounding,
            None if keep_direction else factor,
        )
        return optax.tree.sub(direction, params), new

    def most_lost(state, comparator, norm=None, norm_state=None):
        r"""``thm:constrainedftrl`` for :math:`u / \|u\|`, multiplied by that length.

        .. math:: \|u\| \sum_t \langle g_t, x_t\rangle
                  \le 2 \|u\| \sqrt{(1 + S_T) / \sigma} + \langle\theta_T, u\rangle
        """
        if norm is None:
            raise NoRegretBoundError(
                "`ftrl_step` has a bound inside `with_varying_norm` only, which knows the norm."
            )
        if norm.strong_convexity is None:
            raise NoRegretBoundError(
                "No regret bound is known for this norm: it is not strongly convex. The regret "
                "itself is: `regret(state, comparator)`. Of Algorithm 4, `cover='ellipsoid'` has a "
                "bound."
            )
        squares = state.squared_dual_norm_sum
        sigma = jnp.asarray(norm.strong_convexity, squares.dtype)
        # Each of the theorem's two terms is at most sqrt((1 + S) / sigma).
        regret = 2 * (jnp.sqrt((1 + squares) / sigma) + state.sum_rounding)
        length = primal_norm(norm, norm_state, comparator)
        product = _precision.inner(state.gradient_sum, comparator)
        digits = _precision.inner_rounding(state.gradient_sum, comparator)
        return DirectionBound(length, length * regret + product + digits)

    def displacement(state, like, norm=None, norm_state=None):
        del like
        if keep_direction:
            return state.direction
        if norm is None:
            require_geometry("ftrl_step", None)
        leader = norm.to_primal(norm_state, state.gradient_sum)
        return optax.tree.scale(-state.leader_factor, leader)

    layer = _precision.in_working_precision("ftrl_step", init, update)
    return Certified(layer, most_lost=most_lost, displacement=displacement)


def sigma_of(norm) -> float:
    """Of a norm that nobody has proven strongly convex, as if it were like a quadratic one."""
    return 1.0 if norm.strong_convexity is None else norm.strong_convexity
