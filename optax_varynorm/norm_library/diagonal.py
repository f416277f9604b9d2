"""The diagonal of the full-matrix norms: one weight a coordinate, O(d)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.norm_library.diagonal_root import diagonal_root_norm
from optax_varynorm.norm_library.first_seen import FirstSize, first_size
from optax_varynorm.norms import Reading, VaryingNorm, select


class DiagonalState(NamedTuple):
    """Attributes:
    start: what stands for ``L^2`` in the weights; zero before the first gradient.
    inverse: the reciprocal weights, a tree like the parameters; zero before the first gradient.
    """

    start: jax.Array
    inverse: optax.Params


def diagonal_norm(lipschitz=1.0, root: bool = False, start: str = "isotropic") -> VaryingNorm:
    r"""The diagonal of ``thm:fullmatrix``'s matrix, or of ``thm:adagrad``'s with ``root=True``.

    .. math::
       \|x\|_t^2 = \sum_j \Big(2L^2 + \sum_{i\le t} g_{i,j}^2\Big) x_j^2
       \quad\text{or}\quad
       \|x\|_t^2 = L \sum_j \Big(L^2 + \sum_{i\le t} g_{i,j}^2\Big)^{1/2} x_j^2.

    Args:
      lipschitz: ``L``, the largest l_2 norm of a gradient, or ``None`` if nobody knows it.
      root: take the square root of the weights.
      start: with ``lipschitz=None``, what stands for ``L`` in :math:`2L^2`. ``"isotropic"``: the
        length of the longest gradient so far. ``"coordinate"``: each coordinate's largest gradient
        so far, so that the units of a coordinate do not matter (not for ``root``); see
        ``first_seen_squares`` for the details. It is no norm in coordinates without a gradient so
        far, and not meant for projections.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.diagonal_norm(lipschitz=1.0)
    >>> state = norm.observe_gradient(norm.init(jnp.zeros(2)), jnp.array([1.0, 0.0]))
    >>> [round(x, 3) for x in norm.to_dual(state, jnp.ones(2)).tolist()]
    [3.0, 2.0]
    """
    if start not in ("isotropic", "coordinate") or (root and start == "coordinate"):
        raise ValueError(
            f"`start` must be 'isotropic' or, without `root`, 'coordinate', not {start!r}."
        )
    if lipschitz is not None:
        _arguments.require_moderate("lipschitz", lipschitz, "the largest l_2 norm of a gradient")
    if root:
        return diagonal_root_norm(lipschitz)
    if lipschitz is not None:
        return _from_known_length(lipschitz)
    return _by_coordinate() if start == "coordinate" else _from_longest()


def _from_known_length(lipschitz) -> VaryingNorm:
    def init(params):
        square = jnp.asarray(lipschitz, _precision.working_dtype(params)) ** 2
        return DiagonalState(square, _fill(params, 1 / (2 * square)))

    def grow(state, reading):
        inverse = jax.tree.map(lambda r, g: r / (1 + r * g**2), state.inverse, reading.gradient)
        return state._replace(inverse=inverse)

    return _norm(init, grow)


class Seen(NamedTuple):
    """Attributes:
    square: the squared length of a gradient.
    as_it_came: the gradient, usable or not.
    """

    square: jax.Array
    as_it_came: optax.Updates


def _from_longest() -> VaryingNorm:
    def init(params):
        zero = jnp.zeros((), _precision.working_dtype(params))
        return DiagonalState(zero, _fill(params, zero))

    def grow(state, reading):
        longest = jnp.maximum(state.start, reading.product.square)
        growth = 2 * (longest - state.start)
        inverse = jax.tree.map(
            lambda r, g: _reciprocal(_precision.reciprocal(r) + growth + g**2),
            state.inverse,
            reading.gradient,
        )
        return DiagonalState(longest, inverse)

    return _norm(init, grow)


class ByCoordinateState(NamedTuple):
    """Attributes:
    largest_squares: the square of each coordinate's largest gradient, zero where none was seen.
    inverse: the reciprocal weights, likewise.
    knows_all: one as soon as no coordinate is without a gradient.
    """

    largest_squares: optax.Updates
    inverse: optax.Params
    knows_all: jax.Array


def _by_coordinate() -> VaryingNorm:
    r"""With :math:`s = g_{t,j}^2`, or what stands for it where it is the coordinate's first:

    .. math:: A_{t,j} = \max(A_{t-1,j}, 2 s) + g_{t,j}^2.

    It increases, is at least :math:`\sum_i g_{i,j}^2` and at least :math:`3 g_{t,j}^2`, and with
    the largest gradient ``m`` so far at most :math:`2 m_j^2 + \sum_i g_{i,j}^2`.
    """

    def init(params):
        zero = jnp.zeros((), _precision.working_dtype(params))
        return ByCoordinateState(_fill(params, zero), _fill(params, zero), jnp.zeros((), jnp.int32))

    def meet(usable, gradient, largest_squares):
        """How first gradients count, and whether all coordinates have had theirs."""
        gradient = select(usable, gradient)
        met = jax.tree.map(lambda g, top: jnp.all((top > 0) | (g != 0)), gradient, largest_squares)
        knows_all = jnp.all(jnp.stack([jnp.ones((), bool), *jax.tree.leaves(met)]))
        return first_size(gradient, largest_squares), knows_all

    def no_more_to_meet(usable, gradient, largest_squares):
        del usable, largest_squares
        one = jnp.ones((), _precision.working_dtype(gradient))
        return FirstSize(one, one, one), jnp.ones((), bool)

    def grow(state, reading):
        size, knows_all = jax.lax.cond(
            state.knows_all > 0,
            no_more_to_meet,
            meet,
            reading.usable,
            reading.product.as_it_came,
            state.largest_squares,
        )

        def counted(is_known, g):
            return jnp.where(is_known, g**2, size.of(g**2))

        def largest_square(top, g):
            return jnp.maximum(top, counted(top > 0, g))

        def inverse_weight(r, g):
            weight = jnp.maximum(_precision.reciprocal(r), 2 * counted(r > 0, g)) + g**2
            return _reciprocal(weight)

        return ByCoordinateState(
            jax.tree.map(largest_square, state.largest_squares, reading.gradient),
            jax.tree.map(inverse_weight, state.inverse, reading.gradient),
            knows_all.astype(jnp.int32),
        )

    return _norm(init, grow)


def _norm(init, grow) -> VaryingNorm:
    def measure(state, gradient):
        square = _precision.inner(gradient, gradient)
        dual = _precision.inner(gradient, to_primal(state, gradient))
        usable = _precision.is_usable(square)
        known = jax.tree.map(
            lambda r, g: jnp.where(usable & (r > 0), g, 0), state.inverse, gradient
        )
        return Reading(
            gradient=select(usable, gradient),
            known=known,
            squared_dual_norm=jnp.where(usable, dual, 0),
            usable=usable,
            product=Seen(jnp.where(usable, square, 0), gradient),
        )

    def to_dual(state, point):
        return jax.tree.map(lambda r, x: _precision.reciprocal(r) * x, state.inverse, point)

    def to_primal(state, gradient):
        return jax.tree.map(jnp.multiply, state.inverse, gradient)

    def inverse(state):
        # Before the first gradient any norm will do for a projection: nothing is learned in it.
        flat = ravel_pytree(state.inverse)[0]
        return jnp.where(flat > 0, flat, 1)

    return VaryingNorm(init, measure, grow, to_dual, to_primal, inverse=inverse)


def _fill(params, value):
    """Arrays of their own, so that all of the state can be donated."""
    return jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), value.dtype) + value, params)


def _reciprocal(weight):
    """Zero where there is no weight yet; finite, also where it is next to nothing."""
    tiny = float(jnp.finfo(weight.dtype).tiny)
    return jnp.where(weight > 0, 1 / jnp.maximum(weight, tiny), 0)
