"""A learner that knows what its parameters really do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.learners import Certified
from optax_varynorm.reductions.anchored import anchored_if_narrow

# The part of a gradient that is heard where the parameter does not follow: little enough for no
# wealth to grow by it, and more than nothing: the learner keeps asking, and finds out when it does.
HEARD = 2.0**-10


class GroundedState(NamedTuple):
    """Attributes:
    unmoved_at: where an entry of the parameters will be if it does not go where it is sent; the
      largest number of its dtype if it is not sent anywhere.
    grounded_learner_state: state of the learner.
    """

    unmoved_at: optax.Params
    grounded_learner_state: optax.OptState


def grounded(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Tell a learner little of the gradient where a parameter does not go where it is sent.

    A bettor bets on displacements. When a later transformation freezes a parameter, its gradient
    stays as it is, every bet on it wins on paper, and the wealth that all parameters share
    explodes. So an entry that stayed where it was although its update would have moved it is heard
    at a thousandth, until it moves. What that hides from the learner the certificates know.

    Parameters narrower than float32 are also ``anchored``. ``varynorm``, ``fixed_norm``,
    ``diagonal``, ``full_matrix`` and ``full_matrix_adagrad`` are grounded.

    Args:
      learner: plays displacements, such as ``with_varying_norm(...)``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.scale_by_coin_betting(vn.ftrl_step())
    >>> optimizer = vn.grounded(vn.with_varying_norm(vn.lp_norm(2.0, None), learner))
    >>> state = optimizer.init({"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    """
    learner = anchored_if_narrow(learner)

    def init(params):
        learner_state = learner.init(params)  # refuses what is no real number
        nowhere = jax.tree.map(lambda leaf: jnp.full(jnp.shape(leaf), _nowhere(leaf)), params)
        return GroundedState(nowhere, learner_state)

    def update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError(
                "The optimizers of this package need the parameters: call "
                "`update(gradients, state, params)`."
            )
        _precision.check_shapes("the optimizer", updates, params)
        stayed = jax.tree.map(jnp.equal, params, state.unmoved_at)
        heard = jax.tree.map(lambda g, idle: jnp.where(idle, g * HEARD, g), updates, stayed)
        step, learner_state = learner.update(
            heard, state.grounded_learner_state, params, **extra_args
        )
        unmoved_at = jax.tree.map(_unmoved_at, params, step, stayed)
        return step, GroundedState(unmoved_at, learner_state)

    def slack(state, comparator, *geometry):
        return learner.slack(state.grounded_learner_state, comparator, *geometry)

    return Certified(optax.GradientTransformationExtraArgs(init, update), slack)


def _unmoved_at(here: jax.Array, step: jax.Array, stayed: jax.Array) -> jax.Array:
    is_sent = jnp.abs(step) > float(jnp.finfo(jnp.result_type(here)).eps) * jnp.abs(here)
    return jnp.where(stayed | is_sent, here, _nowhere(here))


def _nowhere(leaf: jax.Array) -> jax.Array:
    """A place where no parameter is."""
    dtype = jnp.result_type(leaf)
    return jnp.asarray(jnp.finfo(dtype).max, dtype)
