"""The largest feature so far as a norm of one weight."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.norms import Reading, VaryingNorm, select


class FeatureSizeState(NamedTuple):
    """Trees like the parameters.

    Attributes:
      largest: the largest size of each feature so far, zero before the first.
      lengths: roots of the sums of squared gradients; ``None`` for a norm of the features alone.
    """

    largest: optax.Params
    lengths: optax.Updates | None


def feature_size_norm(with_gradients: bool = False) -> VaryingNorm:
    r"""``alg:diagscale``: :math:`\|x\|_t = m_{t+1} |x|`, :math:`m_t = \max_{i\le t} |f_i|`.

    For one weight; ``per_coordinate`` gives each of several its own. There :math:`|g_t| \le |f_t|`,
    so gradients never exceed dual norm one.

    Args:
      with_gradients: the one-dimensional form of ``alg:scale`` instead,
        :math:`\|x\|_t^2 = (\sum_{i\le t} g_i^2 + 2 m_{t+1}^2) x^2`, and ``m_1^2 x^2`` before the
        first gradient that is not zero.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.feature_size_norm()
    >>> state = norm.announce(norm.init(jnp.zeros(2)), jnp.array([3.0, -4.0]))
    >>> norm.to_dual(state, jnp.ones(2)).tolist()
    [9.0, 16.0]
    """

    def scales(state):
        """What points are multiplied by; their squares might not be finite."""
        if not with_gradients:
            return state.largest
        return jax.tree.map(
            lambda largest, length: jnp.hypot(
                length, jnp.where(length > 0, math.sqrt(2), 1) * largest
            ),
            state.largest,
            state.lengths,
        )

    def init(params):
        return FeatureSizeState(
            largest=optax.tree.zeros_like(params),
            lengths=optax.tree.zeros_like(params) if with_gradients else None,
        )

    def measure(state, gradient):
        usable = _precision.is_summable(gradient)
        gradient = select(usable, gradient)
        known = jax.tree.map(lambda m, g: jnp.where(m > 0, g, 0), state.largest, gradient)
        square = _precision.inner(known, to_primal(state, known))
        return Reading(gradient, known, square, usable)

    def grow(state, reading):
        if not with_gradients:
            return state
        return state._replace(lengths=jax.tree.map(jnp.hypot, state.lengths, reading.gradient))

    def announce(state, features):
        sizes = jax.tree.map(_precision.size, features)
        return state._replace(largest=jax.tree.map(jnp.maximum, state.largest, sizes))

    def to_dual(state, point):
        return jax.tree.map(lambda m, x: m * (m * x), scales(state), point)

    def to_primal(state, gradient):
        return jax.tree.map(
            lambda m, g: _precision.ratio(_precision.ratio(g, m), m), scales(state), gradient
        )

    return VaryingNorm(init, measure, grow, to_dual, to_primal, announce=announce)
