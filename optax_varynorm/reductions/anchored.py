"""The exact point, where the parameters have too few digits for it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.certificates.certified import Certified, displacement_of, slack_of


class AnchoredState(NamedTuple):
    """Attributes:
    anchor: where the learner's displacements start: ``w_1``, and what others added to it; or the
      point itself, if the learner's state does not tell its displacement.
    anchored_learner_state: state of the learner.
    """

    anchor: optax.Params
    anchored_learner_state: optax.OptState


def anchored(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Send the parameters to the exact point of the state, so that rounding does not add up.

    An update is relative. Parameters of bfloat16 lose those that are smaller than their last digit
    and would stall; those of float32 drift from the learner's displacement by the rounding of all
    steps so far. This layer keeps the starting point, in float32 at least, and returns the
    difference from the parameters to that point plus the learner's displacement. Around an
    optimizer that does not tell its displacement it adds up the updates itself. What others do to
    the parameters stays, if their dtype can tell it from rounding.

    The ready-made optimizers do this for parameters narrower than float32, those of linear models
    always.

    Args:
      learner: any Optax optimizer.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.anchored(optax.sgd(1e-3))
    >>> params = jnp.ones((), jnp.bfloat16)
    >>> state = optimizer.init(params)
    >>> for _ in range(100):
    ...     updates, state = optimizer.update(jnp.ones((), jnp.bfloat16), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> print(params)  # without `anchored` it would still be 1
    0.898438
    """
    learner_slack, displacement = slack_of(learner), displacement_of(learner)
    learner = optax.with_extra_args_support(learner)

    def point_of(anchor, learner_state):
        if displacement is None:
            return anchor
        return optax.tree.add(anchor, displacement(learner_state, anchor))

    def init(params):
        dtype = _precision.working_dtype(params)
        return AnchoredState(_precision.copy(params, dtype), learner.init(params))

    def update(updates, state, params, *, eps, **extra_args):
        expected = point_of(state.anchor, state.anchored_learner_state)
        # What somebody else added: where the parameters are, if that is not where they were sent.
        stay = _precision.step_to(expected, expected, params, eps)
        added = jax.tree.map(
            lambda param, here, back: jnp.where(back == 0, param - here, 0), params, expected, stay
        )
        anchor = optax.tree.add(state.anchor, added)
        step, learner_state = learner.update(
            updates, state.anchored_learner_state, optax.tree.add(expected, added), **extra_args
        )
        if displacement is None:
            anchor = optax.tree.add(anchor, step)
        target = point_of(anchor, learner_state)
        return optax.tree.sub(target, params), AnchoredState(anchor, learner_state)

    def slack(state, comparator, *geometry):
        return learner_slack(state.anchored_learner_state, comparator, *geometry)

    layer = _precision.in_working_precision("anchored", init, update, knows_its_place=True)
    return Certified(layer, slack)
