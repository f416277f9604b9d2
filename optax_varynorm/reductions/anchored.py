"""The exact point, where the parameters have too few digits for it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.certificates.certified import Certified, slack_of


class AnchoredState(NamedTuple):
    """Attributes:
    exact_point: where the parameters are, before they are rounded to their dtype.
    anchored_learner_state: state of the learner.
    """

    exact_point: optax.Params
    anchored_learner_state: optax.OptState


def anchored(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Keep the point in float32 (float64 for float64 parameters) and send the parameters there.

    An update is relative: parameters of bfloat16 lose those that are smaller than their last digit,
    and would stall. This layer adds the updates up itself, gives its own point to the learner as
    ``params``, and returns the difference from the parameters to it. What others do to the
    parameters stays, if their dtype can tell it from rounding.

    The ready-made optimizers do this for parameters narrower than float32. Around an optimizer of
    float32 parameters it keeps their rounding from adding up.

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
    learner_slack = slack_of(learner)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        dtype = _precision.working_dtype(params)
        return AnchoredState(_precision.copy(params, dtype), learner.init(params))

    def update(updates, state, params, *, eps, **extra_args):
        # Where the parameters are, by the state's digits if they are where it sent them.
        to_params = _precision.step_to(state.exact_point, state.exact_point, params, eps)
        point = jax.tree.map(jnp.add, params, to_params)
        point = jax.tree.map(
            lambda here, exact, moved: jnp.where(moved == 0, here, exact),
            point,
            state.exact_point,
            to_params,
        )
        step, learner_state = learner.update(
            updates, state.anchored_learner_state, point, **extra_args
        )
        point = jax.tree.map(jnp.add, point, step)
        return optax.tree.sub(point, params), AnchoredState(point, learner_state)

    def slack(state, comparator, *geometry):
        return learner_slack(state.anchored_learner_state, comparator, *geometry)

    layer = _precision.in_working_precision("anchored", init, update, knows_its_place=True)
    return Certified(layer, slack)
