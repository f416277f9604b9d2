"""Losses of linear scores, one score a class; all but the squared one have slopes up to one.

Each is ``loss(scores, target, parameter)``. The target of a classifier is the index of the class,
as a float like all targets; a lone score is that of class 1.
"""

import jax
import jax.numpy as jnp


def logistic(scores, target, _):
    """Log loss of one score, or of one against the rest for every class, added up."""
    return jnp.sum(jax.nn.softplus(-_signs(scores, target) * scores))


def softmax(scores, target, _):
    """Log loss of the softmax of the scores."""
    return jax.nn.logsumexp(scores) - _own(scores, target)


def hinge(scores, target, _):
    """Hinge loss of one score, or of one against the rest for every class, added up."""
    return jnp.sum(jnp.maximum(1 - _signs(scores, target) * scores, 0))


def largest_violation(scores, target, _):
    """Crammer and Singer's hinge loss: by how much the worst class is closer than one."""
    return jnp.max(jnp.where(_is_own(scores, target), scores, scores + 1)) - _own(scores, target)


def absolute(scores, target, _):
    return jnp.abs(scores[0] - target)


def quantile(scores, target, level):
    """The pinball loss: its least mean is at the quantile of this level."""
    residual = target - scores[0]
    return jnp.maximum(level * residual, (level - 1) * residual)


def huber(scores, target, delta):
    """Huber's loss divided by ``delta``: quadratic up to there, then of slope one."""
    distance = jnp.abs(scores[0] - target)
    near = jnp.minimum(distance, delta)
    return near * near / (2 * delta) + distance - near


def squared(scores, target, _):
    """Half the square of the residual."""
    return (scores[0] - target) ** 2 / 2


def _is_own(scores, target):
    """Which of the scores is that of the target's class."""
    classes = jnp.arange(len(scores)) if len(scores) > 1 else jnp.ones(1, int)
    return classes.astype(scores.dtype) == target


def _own(scores, target):
    return jnp.sum(jnp.where(_is_own(scores, target), scores, 0))


def _signs(scores, target):
    return jnp.where(_is_own(scores, target), 1, -1).astype(scores.dtype)
