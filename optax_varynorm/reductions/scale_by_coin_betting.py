"""From a direction and a scale to a point (Algorithm 1)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm._in_place import after
from optax_varynorm.certificates.bettor_bound import bettor_bound
from optax_varynorm.certificates.certified import (
    CertifiedTransformation,
    Follower,
    NoRegretBoundError,
)
from optax_varynorm.coin_betting import coin_betting
from optax_varynorm.ftrl import FollowTheLeader, FTRLState, follow_leader
from optax_varynorm.norms import primal_norm


class LeaderFactor(NamedTuple):
    """Attributes:
    leader_factor: the direction, divided by the leader.
    """

    leader_factor: jax.Array


class ScaleByCoinBettingState(NamedTuple):
    """Attributes:
    origin: ``w_1``, where the parameters started.
    direction: ``x_t``, what the direction learner plays, around zero; or the number that makes it
      of the norm's leader, where the norm can tell its leader at no cost.
    scale: ``y_t``, what the scale learner plays.
    direction_state: state of the direction learner.
    scale_state: state of the scale learner.
    """

    origin: optax.Params
    direction: optax.Params | LeaderFactor
    scale: jax.Array
    direction_state: optax.OptState
    scale_state: optax.OptState


def scale_by_coin_betting(
    direction_learner: optax.GradientTransformation,
    scale_learner: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""``alg:1dred``: play :math:`w_t = w_1 + y_t x_t` and learn both factors.

    The direction learner receives :math:`g_t`, the scale learner
    :math:`s_t = \langle g_t, x_t\rangle`. Regrets add up (``thm:1dred``), because

    .. math::
       \langle g_t, y_t x_t - u\rangle
       = s_t (y_t - \|u\|) + \|u\| \langle g_t, x_t - u/\|u\|\rangle.

    Args:
      direction_learner: plays in the current unit ball, ``ftrl_step()`` in the paper; any Optax
        optimizer that starts at zero may stand here.
      scale_learner: any Optax optimizer of one number, ``coin_betting()`` in the paper and by
        default.

    >>> import optax_varynorm as vn
    >>> bettor = vn.freegrad_betting(epsilon=1.0)
    >>> learner = vn.scale_by_coin_betting(vn.ftrl_step(), bettor)
    >>> optimizer = vn.with_varying_norm(vn.full_matrix_norm(), learner)
    """
    direction_learner = optax.with_extra_args_support(direction_learner)
    scale_learner = optax.with_extra_args_support(
        coin_betting() if scale_learner is None else scale_learner
    )

    def init(params):
        scale = jnp.zeros((), _precision.working_dtype(params))
        return ScaleByCoinBettingState(
            origin=params,
            direction=optax.tree.zeros_like(params),
            scale=scale,
            direction_state=direction_learner.init(optax.tree.zeros_like(params)),
            scale_state=scale_learner.init(scale),
        )

    def init_follower(params):
        return init(params)._replace(
            direction=LeaderFactor(jnp.zeros((), _precision.working_dtype(params)))
        )

    def play_direction(updates, state, geometry, extra_args):
        """The coin, the next direction as a tree and as kept, and the state of its learner."""
        if isinstance(direction_learner, FollowTheLeader):
            # A leader is followed from anywhere alike: there is no need for a step.
            factor, leader, direction_state = follow_leader(
                updates, state.direction_state, geometry
            )
            direction = optax.tree.scale(factor, leader)
            if isinstance(state.direction, LeaderFactor):
                total = state.direction_state.gradient_sum
                coin = state.direction.leader_factor * geometry.product_with_leader(updates, total)
                return coin, direction, LeaderFactor(factor), direction_state
            coin = _precision.inner(updates, state.direction)
        else:
            coin = _precision.inner(updates, state.direction)
            step, direction_state = direction_learner.update(
                updates, state.direction_state, state.direction, geometry=geometry, **extra_args
            )
            direction = optax.apply_updates(state.direction, step)
        return coin, direction, after(jnp.isnan(coin), direction), direction_state

    def update(updates, state, params, *, geometry=None, **extra_args):
        coin, direction, kept, direction_state = play_direction(
            updates, state, geometry, extra_args
        )
        # The norm is one of the whole space: it means nothing to the one-dimensional learner.
        scale_step, scale_state = scale_learner.update(
            coin, state.scale_state, state.scale, **extra_args
        )
        scale = optax.apply_updates(state.scale, scale_step)
        step = jax.tree.map(
            lambda origin, x, w: origin + scale * x - w, state.origin, direction, params
        )
        return step, ScaleByCoinBettingState(
            state.origin, kept, scale, direction_state, scale_state
        )

    def regret_bound(state, comparator, norm=None, norm_state=None):
        if norm is None or not isinstance(state.direction_state, FTRLState):
            raise NoRegretBoundError(
                "The bound of `scale_by_coin_betting` is for `ftrl_step()` as its direction "
                "learner, inside `with_varying_norm`."
            )
        if not norm.has_proof:
            raise NoRegretBoundError(
                "No regret bound is known for this norm: it is not strongly convex. The regret "
                "itself is: `regret(state, comparator)`. Of Algorithm 4, `cover='ellipsoid'` has a "
                "bound."
            )
        length = primal_norm(norm, norm_state, optax.tree.sub(comparator, state.origin))
        squares = state.direction_state.squared_dual_norm_sum
        sigma = jnp.asarray(norm.strong_convexity, squares.dtype)
        # thm:1dred: the bettor's regret against the length, and the direction learner's.
        bound = bettor_bound(state.scale_state, length)
        bound = bound + 2 * length * jnp.sqrt((1 + squares) / sigma)
        # Coins that were cut (no norm kept the gradients short) cost more than the bettor knows.
        return jnp.where(_count_refused_coins(state.scale_state) > 0, jnp.inf, bound)

    in_working_precision = functools.partial(
        _precision.in_working_precision, "scale_by_coin_betting"
    )
    follower = Follower(
        init=in_working_precision(init_follower, update).init,
        gradient_sum=lambda state: state.direction_state.gradient_sum,
    )
    return CertifiedTransformation(
        in_working_precision(init, update),
        regret_bound,
        follower=follower if isinstance(direction_learner, FollowTheLeader) else None,
    )


def _count_refused_coins(scale_state) -> jax.Array:
    counts = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(scale_state)
        if "out_of_range" in jax.tree_util.keystr(path)
    ]
    return functools.reduce(jnp.add, counts, jnp.zeros((), jnp.int32))
