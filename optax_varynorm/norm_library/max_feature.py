"""The norm of Algorithm 4 to the letter, with its duality map from an optimal design."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm.norm_library.feature_coordinates import SpanBasis
from optax_varynorm.norms import Reading, VaryingNorm, select

MOST_ITERATIONS = 10_000
# What counts as zero in a design, relative to its sum; by whether numbers have 64 bits.
NEARLY_NOTHING = {True: 1e-8, False: 1e-5}


class MaxFeatureState(NamedTuple):
    """Attributes, in the coordinates of ``SpanBasis``:
    coordinates: how features become vectors without units.
    features: the features announced so far, one a row; zero where unused.
    kept: how many rows are in use.
    gram: the sum of outer products of the gradients.
    most: the factor of the largest squared feature: one before the first gradient, then two.
    overflowed: number of features that found no free row. The norm is then none of Algorithm 4's,
      and every point is NaN, which says so.
    """

    coordinates: SpanBasis
    features: jax.Array
    kept: jax.Array
    gram: jax.Array
    most: jax.Array
    overflowed: jax.Array


def max_feature_norm(capacity: int, tolerance: float | None = None) -> VaryingNorm:
    r"""``alg:scale``: :math:`\|x\|_t^2 = x^\top G_t x + 2\max_{i\le t+1} \langle f_i, x\rangle^2`.

    Before the first gradient it is :math:`\langle f_1, x\rangle^2`. The dual norm is the value of
    an optimal design,

    .. math::
       \|\theta\|_\star^2 = \min_{\lambda\in\Delta}
           \theta^\top \Big(G + 2\sum_i \lambda_i f_i f_i^\top\Big)^{-1} \theta,

    found by :math:`\lambda_i \leftarrow \lambda_i \langle f_i, x\rangle^2 / \sum_j \lambda_j
    \langle f_j, x\rangle^2`, where ``x`` is the inverse times :math:`\theta`, until the duality gap
    :math:`1 - \langle\theta, x\rangle / \|x\|^2` is below ``tolerance`` (``duality_gap`` tells it).
    Where several points attain it (half the square of this norm is not strictly convex), the one
    with the least :math:`\sum_i \langle f_i, x\rangle^2` is taken.

    That half is not strongly convex with respect to the norm either, as ``thm:addnorm`` would need
    (BUILD_NOTES has the counterexample), so no regret bound is proved for it.
    ``feature_cover_norm("span")`` is the norm with a proof, and the fast one.

    Args:
      capacity: how many feature vectors it can keep, all those of the game. Beyond, all points
        are NaN and the state says how many did not fit.
      tolerance: the relative duality gap at which the design is good enough; if ``None``, 1e-13
        in float64 and 1e-6 in float32.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.max_feature_norm(capacity=4)
    >>> state = norm.announce(norm.init(jnp.zeros(2)), jnp.array([3.0, 4.0]))
    >>> int(state.overflowed)
    0
    """
    if capacity < 1:
        raise ValueError(
            f"`capacity` is a number of feature vectors, at least one, not {capacity}."
        )

    def init(params):
        flat, _ = ravel_pytree(params)
        return MaxFeatureState(
            coordinates=SpanBasis.start(flat),
            features=jnp.zeros((capacity, flat.size), flat.dtype),
            kept=jnp.zeros((), jnp.int32),
            gram=jnp.zeros((flat.size, flat.size), flat.dtype),
            most=jnp.ones((), flat.dtype),
            overflowed=jnp.zeros((), jnp.int32),
        )

    def announce(state, features):
        flat, _ = ravel_pytree(features)
        coordinates = state.coordinates.meet(flat)
        vector = coordinates.times(flat)
        is_kept = jnp.any(jnp.all(state.features == vector[None], axis=1)) | ~jnp.any(vector != 0)
        fits = state.kept < capacity
        row = jnp.minimum(state.kept, capacity - 1)
        row_value = jnp.where(is_kept | ~fits, state.features[row], vector)
        return state._replace(
            coordinates=coordinates,
            features=state.features.at[row].set(row_value),
            kept=state.kept + (~is_kept & fits).astype(jnp.int32),
            overflowed=state.overflowed + (~is_kept & ~fits).astype(jnp.int32),
        )

    def measure(state, gradient):
        usable = _precision.is_summable(gradient)
        flat, unravel = ravel_pytree(select(usable, gradient))
        known = jnp.where(state.coordinates.sizes > 0, flat, 0)
        square = jnp.maximum(known @ to_primal_flat(state, known), 0)
        return Reading(unravel(flat), unravel(known), square, usable, flat)

    def grow(state, reading):
        vector = state.coordinates.times(reading.product)
        return state._replace(
            gram=state.gram + jnp.outer(vector, vector),
            most=jnp.where(jnp.any(vector != 0), 2, state.most).astype(vector.dtype),
        )

    def to_primal_flat(state, flat):
        point, _ = _dual_point(state, state.coordinates.times(flat), tolerance)
        point = jnp.where(state.overflowed > 0, jnp.nan, point)
        return state.coordinates.transposed_times(point)

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(to_primal_flat(state, flat))

    def to_dual(state, point):
        """A subgradient of half the squared norm."""
        flat, unravel = ravel_pytree(point)
        turned = state.coordinates.transposed_solve(flat)
        products = state.features @ turned
        largest = jnp.argmax(jnp.abs(products))
        dual = state.gram @ turned + state.most * products[largest] * state.features[largest]
        return unravel(state.coordinates.solve(dual))

    return VaryingNorm(
        init, measure, grow, to_dual, to_primal, announce=announce, strong_convexity=None
    )


def duality_gap(state: MaxFeatureState, gradient, tolerance: float | None = None) -> jax.Array:
    """How far the squared dual norm of a gradient may be from the true one, relative to it."""
    return _dual_point(state, state.coordinates.times(ravel_pytree(gradient)[0]), tolerance)[1]


def _dual_point(state, theta, tolerance):
    r"""The gradient of :math:`\tfrac12\|\theta\|_\star^2`, by coordinates, and the duality gap."""
    wide = jnp.finfo(theta.dtype).bits > 32
    tolerance = (1e-13 if wide else 1e-6) if tolerance is None else tolerance
    in_use = jnp.arange(len(state.features), dtype=jnp.int32) < state.kept
    unknown = jnp.diag((~state.coordinates.known).astype(theta.dtype))
    everything = state.features.T @ state.features + unknown
    # Enough of all features to keep the matrices of all designs regular.
    fixed = state.gram + unknown + NEARLY_NOTHING[wide] * everything

    def matrix_of(design):
        return state.most * (state.features.T * design[None]) @ state.features

    def point_of(design):
        return jnp.linalg.solve(fixed + matrix_of(design), theta)

    def gap_of(point):
        value = theta @ point
        largest = jnp.max(jnp.where(in_use, (state.features @ point) ** 2, 0))
        squared_norm = point @ fixed @ point + state.most * largest
        return 1 - _precision.ratio(value, squared_norm)

    def is_rough(carry):
        _, point, iteration = carry
        return (gap_of(point) > tolerance) & (theta @ point > 0) & (iteration < MOST_ITERATIONS)

    def improve(carry):
        design, point, iteration = carry
        shares = design * (state.features @ point) ** 2
        design = shares / jnp.sum(shares)
        return design, point_of(design), iteration + 1

    design = in_use.astype(theta.dtype) / jnp.maximum(state.kept, 1).astype(theta.dtype)
    start = (design, point_of(design), jnp.zeros((), jnp.int32))
    design, point, _ = jax.lax.while_loop(is_rough, improve, start)
    gap = gap_of(point)
    design = jnp.where(design > NEARLY_NOTHING[wide], design, 0)
    matrix = state.gram + unknown + matrix_of(design)
    return _least_solution(matrix, theta, everything, wide), gap


def _least_solution(matrix, theta, metric, wide):
    """``matrix x = theta`` with the least ``<x, metric x>``, where ``matrix`` may be singular."""
    root = jnp.linalg.cholesky(metric)
    half = jax.scipy.linalg.solve_triangular(root, matrix, lower=True)
    whitened = jax.scipy.linalg.solve_triangular(root, half.T, lower=True)
    values, vectors = jnp.linalg.eigh((whitened + whitened.T) / 2)
    is_zero = values <= NEARLY_NOTHING[wide] * jnp.max(values)
    entries = jax.scipy.linalg.solve_triangular(root, theta, lower=True) @ vectors
    solution = vectors @ jnp.where(is_zero, 0, entries / jnp.where(is_zero, 1, values))
    return jax.scipy.linalg.solve_triangular(root.T, solution, lower=False)
