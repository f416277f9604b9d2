"""Predict, then learn: an optimizer as two calls a round."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax


class OnlineLearner(NamedTuple):
    """Attributes:
    init: ``state = init(params)``.
    predict: ``params, state = predict(state, features)``, the point to use for this example.
    update: ``state = update(state, gradient)``, the gradient of its loss there.
    """

    init: Callable
    predict: Callable
    update: Callable


class OnlineLearnerState(NamedTuple):
    """Attributes:
    played_point: where the last prediction was made.
    pending_gradient: what was learned there and has not moved the point yet.
    played_features: features of the last prediction.
    optimizer_state: state of the optimizer.
    """

    played_point: optax.Params
    pending_gradient: optax.Updates
    played_features: optax.Params
    optimizer_state: optax.OptState


def predict_then_update(optimizer: optax.GradientTransformation) -> OnlineLearner:
    r"""The two-call form of an optimizer that takes ``features`` and ``next_features``.

    Optax's one call ``update(g_t, ..., features=f_t, next_features=f_{t+1})`` needs the next
    features before the next point is known. Here ``predict(state, f_t)`` comes first: it makes the
    update of the round before, now that its ``next_features`` are known, and returns ``w_t``;
    ``update(state, g_t)`` then only remembers the gradient.

    A prediction that nothing was learned from counts as a round with gradient zero, and so does
    what comes before the first one. That moves no optimizer of this package; one with momentum or
    a count of its rounds does notice.

    Args:
      optimizer: any Optax optimizer. One that takes no features ignores them.

    >>> import jax, jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.predict_then_update(vn.diagonal_scale_invariant())
    >>> predict = jax.jit(learner.predict)
    >>> state = learner.init(jnp.zeros(2))
    >>> for features, label in [(jnp.array([1.0, 0.5]), 1.0), (jnp.array([0.5, 1.0]), -1.0)] * 50:
    ...     params, state = predict(state, features)
    ...     state = learner.update(state, jnp.sign(features @ params - label) * features)
    >>> bool(params[0] > 0 > params[1])
    True
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params):
        return OnlineLearnerState(
            played_point=jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), params),
            pending_gradient=optax.tree.zeros_like(params),
            played_features=optax.tree.zeros_like(params),
            optimizer_state=optimizer.init(params),
        )

    def predict(state, features):
        step, optimizer_state = optimizer.update(
            state.pending_gradient,
            state.optimizer_state,
            state.played_point,
            features=state.played_features,
            next_features=features,
        )
        point = optax.apply_updates(state.played_point, step)
        return point, OnlineLearnerState(
            played_point=point,
            pending_gradient=optax.tree.zeros_like(point),
            played_features=features,
            optimizer_state=optimizer_state,
        )

    def update(state, gradient):
        return state._replace(pending_gradient=gradient)

    return OnlineLearner(init, predict, update)
