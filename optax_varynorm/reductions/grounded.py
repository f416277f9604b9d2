"""A learner that knows what its parameters really do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.learners import Certified, slack_of
from optax_varynorm.reductions.anchored import AnchoredState, anchored

# The part of a gradient that is heard where its leaf does not follow: little enough for no wealth
# to grow by it, and more than nothing, so that the learner keeps asking and finds out when it does.
HEARD = 2.0**-10
# So many entries of a leaf are looked at.
SAMPLES = 16


class GroundedState(NamedTuple):
    """Attributes:
    left_at: a row of some entries for each leaf of the parameters, as they were in the last round.
    was_sent: for each leaf, whether its update would have moved any of them.
    grounded_learner_state: state of the learner.
    """

    left_at: jax.Array
    was_sent: jax.Array
    grounded_learner_state: optax.OptState


def grounded(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Tell a learner little of the gradient of a leaf that does not go where it is sent.

    A bettor bets on displacements. When a later transformation freezes a leaf, the gradient of that
    leaf stays as it is, every bet on it wins on paper, and the wealth that all leaves share
    explodes. So a leaf that stayed where it was although its update would have moved it is heard
    at a thousandth, until it moves. What that hides from the learner the certificates know.

    Whether a leaf stayed is told by a few entries, evenly spread over it: by those of them that an
    update would move. Parameters narrower than float32 are also ``anchored``. All ready-made
    optimizers are grounded.

    Args:
      learner: plays displacements, such as ``with_varying_norm(...)``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.scale_by_coin_betting(vn.ftrl_step())
    >>> optimizer = vn.grounded(vn.with_varying_norm(vn.lp_norm(2.0, None), learner))
    >>> state = optimizer.init({"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    """
    wide = Certified(optax.with_extra_args_support(learner), slack_of(learner))
    narrow = anchored(learner)

    def for_dtypes_of(params):
        dtypes = map(jnp.result_type, jax.tree.leaves(params))
        return narrow if any(jnp.finfo(dtype).bits < 32 for dtype in dtypes) else wide

    def init(params):
        here = _sample(params)
        return GroundedState(
            left_at=here,
            was_sent=jnp.zeros(len(here), bool),
            grounded_learner_state=for_dtypes_of(params).init(params),
        )

    def update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError(
                "The optimizers of this package need the parameters: call "
                "`update(gradients, state, params)`."
            )
        _precision.check_shapes("the optimizer", updates, params)
        leaves, structure = jax.tree.flatten(updates)
        if not leaves:
            return updates, state
        here = _sample(params)
        stayed = state.was_sent & jnp.all(here == state.left_at, axis=1)
        shares = jnp.where(stayed, HEARD, 1)
        heard = [
            share.astype(jnp.result_type(leaf)) * leaf
            for share, leaf in zip(shares, leaves, strict=True)
        ]
        step, learner_state = for_dtypes_of(params).update(
            jax.tree.unflatten(structure, heard),
            state.grounded_learner_state,
            params,
            **extra_args,
        )
        was_sent = jnp.any(here != _sample(optax.apply_updates(params, step)), axis=1)
        return step, GroundedState(here, was_sent, learner_state)

    def slack(state, comparator, *geometry):
        learner_state = state.grounded_learner_state
        if isinstance(learner_state, AnchoredState):
            return narrow.slack(learner_state, comparator, *geometry)
        return wide.slack(learner_state, comparator, *geometry)

    return Certified(optax.GradientTransformationExtraArgs(init, update), slack)


def _sample(params: optax.Params) -> jax.Array:
    """For each leaf a row of entries that are evenly spread over it, all of a small one."""
    dtype = _precision.working_dtype(params)

    def row(leaf):
        every = max(1, jnp.size(leaf) // SAMPLES)
        some = jnp.ravel(leaf)[: SAMPLES * every : every].astype(dtype)
        return jnp.resize(_precision.as_precise_as(leaf, some), (SAMPLES,))

    rows = [row(leaf) for leaf in jax.tree.leaves(params)]
    return jnp.stack(rows) if rows else jnp.zeros((0, SAMPLES), dtype)
