"""One matrix that covers the features of a linear model and grows with its gradients."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm._in_place import rarely, rarely_for_all
from optax_varynorm.norm_library import growing_inverse
from optax_varynorm.norm_library.feature_coordinates import FARTHEST, FirstSizes, SpanBasis
from optax_varynorm.norm_library.growing_inverse import GrowingInverse
from optax_varynorm.norms import Reading, VaryingNorm, select


class FeatureCoverState(NamedTuple):
    """Attributes, all flat:
    coordinates: how features become vectors without units.
    weights: the diagonal of the matrix, in these coordinates.
    received_sum: the sum of the gradients that the learner received, in the parameters' units.
    inverse: the inverse of the matrix, in these coordinates.
    """

    coordinates: Any
    weights: jax.Array
    received_sum: jax.Array
    inverse: GrowingInverse


def feature_cover_norm(start: str = "coordinate") -> VaryingNorm:
    r"""``alg:scale`` with one matrix for the features: :math:`\|x\|_t^2 = x^\top A_t x`.

    Where the paper's norm has :math:`2\max_i \langle f_i, x\rangle^2`, whose half is not strongly
    convex with respect to itself, as its proof needs, a matrix covers the features: when ``f``
    arrives and :math:`q = f^\top A^{-1} f > 1`, it grows by :math:`(1 - 1/q) f f^\top`, just enough
    for ``f`` to have dual norm one. After the round it grows by :math:`g_t g_t^\top`. So
    :math:`\|g_t\|_{t-1,\star} \le |\nabla_t| \le 1` with nothing to clip, the norms increase, and
    each growth for a feature multiplies the determinant of ``A`` by ``q``, so there are few.

    O(d^2) a round. It plays zero where no feature was announced; domains are not meant for it.

    Args:
      start: what a new direction brings. ``"coordinate"``: a coordinate enters the matrix with the
        square of its first nonzero feature, so that the units of a feature do not matter.
        ``"span"``: a feature vector outside the span of those before is added whole, so that no
        invertible linear map of the features matters; that costs another read of a matrix, and
        a feature should not grow by more than 2^60 in float32.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.feature_cover_norm()
    >>> features = jnp.array([3.0, 4.0])
    >>> state = norm.announce(norm.init(jnp.zeros(2)), features)
    >>> bool(vn.dual_norm(norm, state, features) <= 1.001)
    True
    """
    if start not in ("coordinate", "span"):
        raise ValueError(f"`start` must be 'coordinate' or 'span', not {start!r}.")
    first_coordinates = {"coordinate": FirstSizes.start, "span": SpanBasis.start}[start]

    def init(params):
        flat, _ = ravel_pytree(params)
        return FeatureCoverState(
            coordinates=first_coordinates(flat),
            weights=jnp.zeros_like(flat),
            received_sum=jnp.zeros_like(flat),
            inverse=growing_inverse.scaled_identity(jnp.ones((), flat.dtype), jnp.zeros_like(flat)),
        )

    def cover(state, flat):
        if not flat.size:
            return state
        coordinates = state.coordinates.meet(flat)
        is_new = coordinates.known & ~state.coordinates.known
        state = state._replace(coordinates=coordinates, weights=jnp.where(is_new, 1, state.weights))
        state, _, vector, primal = jax.lax.while_loop(
            lambda carry: jnp.any(_outgrown(carry[0], carry[2]) > 1),
            _restart_coordinate,
            (state, flat, *_measure(state, flat)),
        )
        length = _precision.dot(vector, primal)
        covers = length <= 1 + 16 * jnp.finfo(flat.dtype).eps
        excess = jnp.where(covers, 0, 1 - 1 / jnp.where(covers, 1, length))
        root = jnp.sqrt(excess)
        inverse = rarely(~covers, growing_inverse.grow, state.inverse, root * vector, root * primal)
        return state._replace(weights=state.weights + excess * vector**2, inverse=inverse)

    def announce(state, features):
        return cover(state, ravel_pytree(features)[0])

    def measure(state, gradient):
        usable = _precision.is_summable(gradient)
        flat, unravel = ravel_pytree(select(usable, gradient))
        known = jnp.where(state.coordinates.sizes > 0, flat, 0)
        vector = state.coordinates.times(known)
        primal = growing_inverse.times(state.inverse, vector)
        square = jnp.maximum(_precision.dot(vector, primal), 0)
        return Reading(unravel(flat), unravel(known), square, usable, (known, vector, primal))

    def grow(state, reading):
        known, vector, primal = reading.product
        share = jnp.asarray(reading.share, known.dtype)
        return state._replace(
            weights=state.weights + vector**2,
            received_sum=state.received_sum + share * known,
            inverse=growing_inverse.grow(state.inverse, vector, primal, share),
        )

    def to_primal(state, gradient):
        """Of the sum that the learner received it is known."""
        flat, unravel = ravel_pytree(gradient)

        def is_another(leader, flat, state):
            return jnp.any(flat != state.received_sum)

        def product(leader, flat, state):
            return growing_inverse.times(state.inverse, state.coordinates.times(flat))

        primal = rarely_for_all(is_another, product, state.inverse.leader, flat, state)
        return unravel(state.coordinates.transposed_times(primal))

    def to_dual(state, point):
        """O(d^3); a learner does not need it, its certificate does."""
        flat, unravel = ravel_pytree(point)
        if not flat.size:
            return point
        turned = state.coordinates.transposed_solve(flat)
        solved = jnp.linalg.solve(growing_inverse.dense(state.inverse), turned)
        return unravel(state.coordinates.solve(solved))

    return VaryingNorm(init, measure, grow, to_dual, to_primal, announce=announce)


def _measure(state, flat):
    """A feature vector in the state's coordinates, and the inverse times it."""
    vector = jnp.clip(state.coordinates.times(flat), -FARTHEST, FARTHEST)
    return vector, growing_inverse.times(state.inverse, vector)


def _outgrown(state, vector):
    """Above one for entries whose coordinate is to start afresh; zero for what is no number."""
    excess = vector**2 / jnp.maximum(growing_inverse.OUTGROWN * state.weights, 1)
    return jnp.where(jnp.isnan(excess), 0, excess)


def _restart_coordinate(carry):
    state, flat, vector, _ = carry
    index = jnp.argmax(_outgrown(state, vector))
    at_index = jnp.arange(flat.size) == index
    factors = jnp.where(at_index, jnp.abs(vector[index]), growing_inverse.INFLATION)
    coordinates = state.coordinates.enlarge(factors)
    restarted = FeatureCoverState(
        coordinates=coordinates,
        weights=jnp.where(at_index, 1, state.weights),
        received_sum=state.received_sum,
        inverse=growing_inverse.restart_coordinate(
            state.inverse,
            index,
            coordinates.times(state.received_sum)[index],
            1 / growing_inverse.INFLATION,
        ),
    )
    return restarted, flat, *_measure(restarted, flat)
