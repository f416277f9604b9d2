"""A learner that is charged with what the parameters really did."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.learners import Certified, displacement, telling
from optax_varynorm.reductions.anchored import anchored_if_narrow

# The part of a gradient that is heard where the parameter does not follow: little enough for no
# direction to be lost to it, and more than nothing: the learner keeps asking, and finds out when it
# does.
HEARD = 2.0**-10


class GroundedState(NamedTuple):
    """Attributes:
    unmoved_at: where an entry of the parameters will be if it does not go where it is sent; the
      largest number of its dtype if it is not sent anywhere.
    followed_by: the part of the learner's displacement that the parameters have followed.
    grounded_learner_state: state of the learner, which tells its displacement.
    """

    unmoved_at: optax.Params
    followed_by: optax.Params
    grounded_learner_state: optax.OptState


def grounded(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Charge a learner with what the parameters did, not with what it asked for.

    A bettor bets on displacements. When a later transformation freezes a parameter or shortens its
    steps, the gradient stays as it is, bets win on paper that were never made, and the wealth that
    all parameters share explodes. So this layer follows the parameters. In every round an entry has
    moved towards its place in the learner's displacement ``z``, or not; what it moved adds up to
    ``d``. Two things follow.

    * The bettor's coin is multiplied by :math:`\langle g_t, d_t\rangle / \langle g_t, z_t\rangle`,
      cut to [-1, 1]. It wins what was really won.
    * An entry that stayed where it was although its update would have moved it is heard at a
      thousandth until it moves, so that no direction is lost to it.

    What others add to the parameters (weight decay, noise) is none of the learner's doing, and is
    not charged. Where everything follows, nothing changes. The certificates know all of it.

    Parameters narrower than float32 are also ``anchored``. ``varynorm``, ``fixed_norm``,
    ``diagonal``, ``full_matrix`` and ``full_matrix_adagrad`` are grounded.

    Args:
      learner: plays displacements, such as ``with_varying_norm(...)``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.scale_by_coin_betting(vn.ftrl_step())
    >>> optimizer = vn.grounded(vn.with_varying_norm(vn.lp_norm(2.0, None), learner))
    >>> state = optimizer.init({"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    """
    learner = anchored_if_narrow(telling(learner))

    def init(params):
        dtype = _precision.working_dtype(params)
        return GroundedState(
            unmoved_at=jax.tree.map(lambda x: jnp.full(jnp.shape(x), *_nowhere(x)), params),
            followed_by=jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), dtype), params),
            grounded_learner_state=learner.init(params),
        )

    def update(updates, state, params=None, *, followed=None, **extra_args):
        if params is None:
            raise ValueError(
                "The optimizers of this package need the parameters: call "
                "`update(gradients, state, params)`."
            )
        _precision.check_shapes("the optimizer", updates, params)
        stayed = jax.tree.map(jnp.equal, params, state.unmoved_at)
        heard = jax.tree.map(lambda g, idle: jnp.where(idle, g * HEARD, g), updates, stayed)
        wished = displacement(learner, state.grounded_learner_state, params)
        followed_by = jax.tree.map(_follow, state.followed_by, wished, params, state.unmoved_at)
        if followed is None:  # else a layer outside has asked the same
            followed = _share(_precision.inner(heard, followed_by), _precision.inner(heard, wished))
        step, learner_state = learner.update(
            heard, state.grounded_learner_state, params, followed=followed, **extra_args
        )
        unmoved_at = jax.tree.map(_unmoved_at, params, step, stayed)
        return step, GroundedState(unmoved_at, followed_by, learner_state)

    def slack(state, comparator, *geometry):
        return learner.slack(state.grounded_learner_state, comparator, *geometry)

    bare = optax.GradientTransformationExtraArgs(init, update)
    return Certified(
        bare,
        slack,
        displacement=lambda state, like, *_: displacement(
            learner, state.grounded_learner_state, like
        ),
    )


def _follow(followed_by, wished, here, unmoved_at):
    """How far an entry has followed by now: what it moved last, but not beyond its wish."""
    gap = wished - followed_by
    start = jnp.where(unmoved_at == _nowhere(here)[0], here, unmoved_at).astype(gap.dtype)
    moved = here.astype(gap.dtype) - start
    by_rounding = jnp.abs(moved - gap) <= _precision.rounding_of(
        jnp.maximum(jnp.abs(start), jnp.abs(here.astype(gap.dtype))),
        jnp.finfo(jnp.result_type(here)),
    )
    towards = jnp.clip(moved, jnp.minimum(gap, 0), jnp.maximum(gap, 0))
    # All of it, and not the sum of its parts: that would be off by rounding.
    return jnp.where(by_rounding, wished, followed_by + towards)


def _share(won, wished):
    """The part of the winnings on paper that is real; what was lost on paper is lost at most."""
    return jnp.where(wished == 0, 1, jnp.clip(_precision.ratio(won, wished), -1, 1))


def _unmoved_at(here: jax.Array, step: jax.Array, stayed: jax.Array) -> jax.Array:
    nowhere, dtype = _nowhere(here)
    is_sent = jnp.abs(step) > float(jnp.finfo(dtype).eps) * jnp.abs(here)
    return jnp.where(stayed | is_sent, here, nowhere)


def _nowhere(leaf):
    """A place where no parameter is, and its dtype."""
    dtype = jnp.result_type(leaf)
    return jnp.asarray(jnp.finfo(dtype).max, dtype), dtype
