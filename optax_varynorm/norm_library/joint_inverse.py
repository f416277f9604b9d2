"""The inverse of a sum of matrices that are known by their inverses."""

import functools

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm.domains.metric import metric_of


def joint_inverse_of(norms, parts, like) -> jax.Array:
    """``P (P + Q)^{-1} Q``, part by part: never a difference, so nothing cancels in float32."""
    flat, _ = ravel_pytree(like)
    if not flat.size:
        return jnp.zeros_like(flat)
    metrics = (metric_of(norm, part, like) for norm, part in zip(norms, parts, strict=True))
    inverses = [
        jnp.asarray(metric.inverse() if metric.is_diagonal else metric.dense(flat.size), flat.dtype)
        for metric in metrics
        if metric.inverse is not None
    ]
    return functools.reduce(functools.partial(_parallel, size=flat.size), inverses)


def _parallel(p, q, size):
    if p.ndim < 2 and q.ndim < 2:
        p, q = (jnp.broadcast_to(part, (size,)) for part in (p, q))
        return p * (q / (p + q))
    p, q = (
        part if part.ndim == 2 else jnp.diag(jnp.broadcast_to(part, (size,))) for part in (p, q)
    )
    joint = p @ jnp.linalg.solve(p + q, q)
    return (joint + joint.T) / 2


def times(inverse, flat):
    return inverse @ flat if inverse.ndim == 2 else jnp.broadcast_to(inverse, flat.shape) * flat
