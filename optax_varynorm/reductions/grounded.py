"""A learner that knows what its parameters really do."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from optax_varynorm import _precision
from optax_varynorm.certificates.certified import Certified, slack_of
from optax_varynorm.reductions.anchored import AnchoredState, anchored

# The part of a gradient that is heard where its leaf does not follow: little enough for no wealth
# to grow by it, and more than nothing, so that the learner keeps asking and finds out when it does.
HEARD = 2.0**-10
# So many entries of a leaf are looked at.
MOST_ENTRIES = 1024


class GroundedState(NamedTuple):
    """Attributes:
    left_at: a fingerprint of each leaf of the parameters in the last round.
    sent_to: a fingerprint of each leaf as it would be with the updates added.
    grounded_learner_state: state of the learner.
    """

    left_at: Any
    sent_to: Any
    grounded_learner_state: optax.OptState


def grounded(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Tell a learner little of the gradient of a leaf that does not go where it is sent.

    A bettor bets on displacements. When a later transformation freezes a leaf, the gradient of that
    leaf stays as it is, every bet on it wins on paper, and the wealth that all leaves share
    explodes. So a leaf that stayed where it was although its update would have moved it is heard
    at a thousandth, until it moves. What that hides from the learner the certificates know.

    Whether a leaf stayed is told by two numbers for each leaf, not by a copy of it. Parameters
    narrower than float32 are also ``anchored``. All ready-made optimizers are grounded.

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
        _precision.working_dtype(params)  # refuses what is no real number
        fingerprints = _fingerprints(params)
        return GroundedState(
            left_at=fingerprints,
            sent_to=jax.tree.map(jnp.array, fingerprints),
            grounded_learner_state=for_dtypes_of(params).init(params),
        )

    def update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError(
                "The optimizers of this package need the parameters: call "
                "`update(gradients, state, params)`."
            )
        _precision.check_shapes("the optimizer", updates, params)
        left_at = _fingerprints(params)

        def hear(gradient, before, here, sent_to):
            stayed = (here == before) & (sent_to != before)
            return jnp.where(stayed, HEARD, 1).astype(jnp.result_type(gradient)) * gradient

        heard = jax.tree.map(hear, updates, state.left_at, left_at, state.sent_to)
        step, learner_state = for_dtypes_of(params).update(
            heard, state.grounded_learner_state, params, **extra_args
        )
        sent_to = _fingerprints(optax.apply_updates(params, step))
        return step, GroundedState(left_at, sent_to, learner_state)

    def slack(state, comparator, *geometry):
        learner_state = state.grounded_learner_state
        if isinstance(learner_state, AnchoredState):
            return narrow.slack(learner_state, comparator, *geometry)
        return wide.slack(learner_state, comparator, *geometry)

    return Certified(optax.GradientTransformationExtraArgs(init, update), slack)


def _fingerprints(params: optax.Params) -> Any:
    """One number for each leaf, which changes when the leaf does.

    A weighted sum of the bits of some of its entries, evenly spread: if none of these moves, those
    of a leaf that moves at all were not asked to either.
    """

    def of_leaf(leaf):
        flat = jnp.ravel(leaf)[:: -(-jnp.size(leaf) // MOST_ENTRIES) or 1]
        width = min(jnp.finfo(flat.dtype).bits, 32)
        bits = jax.lax.bitcast_convert_type(flat, jnp.dtype(f"uint{width}")).astype(np.uint32)
        # Odd weights, so that changes of opposite sign in two places do not cancel.
        weights = np.arange(1, 2 * bits.size, 2, dtype=np.uint32).reshape(bits.shape)
        return jnp.sum(bits * weights, dtype=np.uint32)

    return jax.tree.map(of_leaf, params)
