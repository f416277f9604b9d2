"""The exact point, where the parameters have too few digits for it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.learners import Certified, displacement, displacement_of, slack_of, telling


class AnchoredState(NamedTuple):
    """Attributes:
    anchor: where the learner's displacements start: ``w_1``, and what others added to it.
    left_from: the parameters before the last step.
    anchored_learner_state: state of the learner, which tells its displacement.
    """

    anchor: optax.Params
    left_from: optax.Params
    anchored_learner_state: optax.OptState


def anchored(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Send the parameters to the exact point of the state, so that rounding does not add up.

    An update is relative. Parameters of bfloat16 lose those that are smaller than their last digit
    and would stall; those of float32 drift from the learner's displacement by the rounding of all
    steps so far. This layer keeps the starting point, in float32 at least, and returns the
    difference from the parameters to that point plus the learner's displacement, which is the sum
    of its updates if its state does not know better. What others do to the parameters stays: the
    parameters are where the last step led, or somebody has moved them. On narrow parameters a later
    transformation that scales steps below their last digit stops them; put it inside:
    ``anchored(optax.chain(optimizer, schedule))``.

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
    learner = telling(learner)

    def point_of(anchor, learner_state):
        return optax.tree.add(anchor, displacement(learner, learner_state, anchor))

    def init(params):
        dtype = _precision.working_dtype(params)
        return AnchoredState(
            anchor=_precision.copy(params, dtype),
            left_from=jax.tree.map(_copy, params),
            anchored_learner_state=learner.init(_precision.copy(params, dtype)),
        )

    def update(updates, state, params, *, precision, **extra_args):
        expected = point_of(state.anchor, state.anchored_learner_state)
        arrived = _precision.arrival(state.left_from, expected)
        added = jax.tree.map(_moved_by_others, params, arrived, state.left_from)
        anchor = optax.tree.add(state.anchor, added)
        _, learner_state = learner.update(
            updates, state.anchored_learner_state, optax.tree.add(expected, added), **extra_args
        )
        left_from = jax.tree.map(lambda here, finfo: _copy(here, finfo.dtype), params, precision)
        step = optax.tree.sub(point_of(anchor, learner_state), params)
        return step, AnchoredState(anchor, left_from, learner_state)

    def slack(state, comparator, *geometry):
        return learner.slack(state.anchored_learner_state, comparator, *geometry)

    def moved(state, like, *geometry):
        return displacement(learner, state.anchored_learner_state, like, *geometry)

    layer = _precision.in_working_precision("anchored", init, update, knows_its_place=True)
    return Certified(layer._replace(init=init), slack, displacement=moved)


def anchored_if_narrow(learner: optax.GradientTransformation) -> Certified:
    """The learner; ``anchored``, if a parameter is narrower than float32."""
    narrow, tells = anchored(learner), displacement_of(learner)
    extended = optax.with_extra_args_support(learner)
    wide = Certified(extended, slack_of(learner), displacement=tells)

    def init(params):
        return (narrow if _is_narrow(params) else wide).init(params)

    def chosen(state):
        is_narrow = isinstance(state, AnchoredState) and _is_narrow(state.left_from)
        return narrow if is_narrow else wide

    def update(updates, state, params=None, **extra_args):
        return chosen(state).update(updates, state, params, **extra_args)

    def slack(state, comparator, *geometry):
        return chosen(state).slack(state, comparator, *geometry)

    def moved(state, like, *geometry):
        return displacement(chosen(state), state, like, *geometry)

    bare = optax.GradientTransformationExtraArgs(init, update)
    return Certified(bare, slack, displacement=tells and moved)


def _is_narrow(params) -> bool:
    _precision.working_dtype(params)  # refuses what is no real number
    dtypes = map(jnp.result_type, jax.tree.leaves(params))
    return any(jnp.finfo(dtype).bits < 32 for dtype in dtypes)


def _copy(leaf, dtype=None):
    """An array of its own, of one strong dtype."""
    return jnp.array(leaf, jnp.result_type(leaf) if dtype is None else dtype, copy=True)


def _moved_by_others(param, arrived, left_from):
    """From where a step arrived to where the parameter is, but for rounding of that step.

    Other programs may round a sum differently: in its last digits, if not in the parameter's.
    """
    sizes = jnp.maximum(jnp.abs(arrived), jnp.abs(left_from.astype(arrived.dtype)))
    moved = param - arrived
    return jnp.where(jnp.abs(moved) <= _precision.rounding_of(sizes), 0, moved)
