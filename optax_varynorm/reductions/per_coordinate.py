"""One learner for each coordinate."""

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm.learners import (
    Certified,
    CoordinateLearner,
    displacement_of,
    slack_of,
)


def per_coordinate(
    learner: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    r"""Run a copy of a one-dimensional learner on every coordinate, all at once by ``vmap``.

    Losses are linear, so the regrets add up, as in ``alg:diagscale``:

    .. math:: \sum_t \langle g_t, w_t - u\rangle = \sum_i \sum_t g_{t,i} (w_{t,i} - u_i).

    The state is that of the learner with one more axis, as long as there are coordinates. Extra
    arguments that are shaped like the parameters, such as ``features``, are shared out by
    coordinate; others go to every copy.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.per_coordinate(vn.fixed_norm())
    >>> state = optimizer.init(jnp.zeros(2))
    """
    learner_slack, learner_displacement = slack_of(learner), displacement_of(learner)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        return jax.vmap(learner.init)(ravel_pytree(params)[0])

    def update(updates, state, params, *, geometry=None, **extra_args):
        del geometry  # one of the whole space, which means nothing to one coordinate
        flat, unravel = ravel_pytree(params)
        shapes = jax.tree.map(jnp.shape, params)
        shared = {
            name: ravel_pytree(_precision.cast(value, flat.dtype))[0]
            for name, value in extra_args.items()
            if jax.tree.map(jnp.shape, value) == shapes
        }
        whole = {name: value for name, value in extra_args.items() if name not in shared}

        def update_coordinate(gradient, state, param, shared):
            return learner.update(gradient, state, param, **shared, **whole)

        steps, state = jax.vmap(update_coordinate)(ravel_pytree(updates)[0], state, flat, shared)
        return unravel(steps), state

    def slack(state, comparator, *_):
        return jnp.sum(jax.vmap(learner_slack)(state, ravel_pytree(comparator)[0]))

    def displacement(state, params):
        assert learner_displacement is not None
        flat, unravel = ravel_pytree(params)
        return unravel(jax.vmap(learner_displacement)(state, flat))

    return Certified(
        _precision.in_working_precision("per_coordinate", init, update),
        slack,
        displacement=learner_displacement and displacement,
    )


def coordinate_learner_of(
    optimizer: optax.GradientTransformation, size: int
) -> CoordinateLearner | None:
    """What each of so many coordinates has a learner of its own of; ``None`` if it may be more."""
    return getattr(optimizer, "coordinate_learner", lambda size: None)(size)
