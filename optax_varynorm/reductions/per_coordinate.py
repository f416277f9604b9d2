"""One learner for each coordinate."""

import optax

from optax_varynorm.learners import CoordinateLearner
from optax_varynorm.norm_library.first_seen import SMALLEST_COORDINATE
from optax_varynorm.reductions.per_part import Parts, per_part, require_part


def per_coordinate(
    learner: optax.GradientTransformation, smallest_first=SMALLEST_COORDINATE
) -> optax.GradientTransformationExtraArgs:
    r"""Run a copy of a one-dimensional learner on every coordinate, all at once by ``vmap``.

    Losses are linear, so the regrets add up, as in ``alg:diagscale``:

    .. math:: \sum_t \langle g_t, w_t - u\rangle = \sum_i \sum_t g_{t,i} (w_{t,i} - u_i).

    Extra arguments that are shaped like the parameters, such as ``features``, are shared out by
    coordinate; others go to every copy.

    Args:
      learner: a learner of one number, such as ``vn.fixed_norm()``.
      smallest_first: see ``per_block``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.per_coordinate(vn.fixed_norm())
    >>> state = optimizer.init(jnp.zeros(2))
    """
    require_part(smallest_first)
    numbers = Parts(stack=lambda flat: (flat,), unstack=lambda stacks: stacks[0])
    return per_part("per_coordinate", learner, lambda tree: numbers, smallest_first)


def coordinate_learner_of(
    optimizer: optax.GradientTransformation, size: int
) -> CoordinateLearner | None:
    """What each of so many coordinates has a learner of its own of; ``None`` if it may be more."""
    return getattr(optimizer, "coordinate_learner", lambda size: None)(size)
