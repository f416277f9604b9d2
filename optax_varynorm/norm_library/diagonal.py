"""The diagonal of the full-matrix norms: one weight a coordinate, O(d)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm._in_place import rarely
from optax_varynorm.norm_library.diagonal_root import diagonal_root_norm
from optax_varynorm.norm_library.first_seen import first_seen_squares
from optax_varynorm.norms import Eigenbasis, VaryingNorm


class DiagonalState(NamedTuple):
    """Attributes:
    start: what stands for ``L^2`` in the weights: one number, or a tree like the parameters. Zero
      where no gradient was seen.
    inverse: the reciprocal weights, a tree like the parameters. Zero where the norm is.
    knows_all: whether no coordinate is without a gradient, as far as that matters.
    """

    start: Any
    inverse: optax.Params
    knows_all: jax.Array


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
        return DiagonalState(square, _fill(params, 1 / (2 * square)), jnp.ones((), bool))

    def observe_gradient(state, gradient):
        inverse = jax.tree.map(lambda r, g: r / (1 + r * g**2), state.inverse, gradient)
        return state._replace(inverse=inverse)

    return _norm(init, observe_gradient)


def _from_longest() -> VaryingNorm:
    def init(params):
        # Before the first gradient any norm will do: nothing is learned in it.
        dtype = _precision.working_dtype(params)
        half = jnp.full((), 0.5, dtype)
        return DiagonalState(jnp.zeros((), dtype), _fill(params, half), jnp.zeros((), bool))

    def observe_gradient(state, gradient):
        longest = jnp.maximum(state.start, _precision.inner(gradient, gradient))
        growth = 2 * (longest - state.start)
        inverse = jax.tree.map(
            lambda r, g: jnp.where(
                longest > 0, _reciprocal(jnp.where(state.knows_all, 1 / r, 0) + growth + g**2), r
            ),
            state.inverse,
            gradient,
        )
        return DiagonalState(longest, inverse, longest > 0)

    def known_part(state, gradient):
        return jax.tree.map(lambda g: jnp.where(state.knows_all, g, 0), gradient)

    return _norm(init, observe_gradient, known_part)


def _by_coordinate() -> VaryingNorm:
    def init(params):
        zero = jnp.zeros((), _precision.working_dtype(params))
        return DiagonalState(_fill(params, zero), _fill(params, zero), jnp.zeros((), bool))

    def grow(start, inverse, gradient):
        return jax.tree.map(
            lambda top, r, g: jnp.where(
                r > 0, 1 / (1 / r + 2 * (jnp.maximum(top, g**2) - top) + g**2), 0
            ),
            start,
            inverse,
            gradient,
        )

    def meet(state, gradient):
        """Coordinates with their first gradient enter."""
        start = jax.tree.map(
            lambda top, seen: jnp.where(top > 0, top, seen),
            state.start,
            first_seen_squares(gradient, state.start),
        )
        inverse = jax.tree.map(
            lambda r, top, g: jnp.where((r > 0) | (top == 0), r, _reciprocal(2 * top + g**2)),
            state.inverse,
            start,
            gradient,
        )
        known = (jnp.all(r > 0) for r in jax.tree.leaves(inverse))
        return DiagonalState(start, inverse, jnp.all(jnp.stack([jnp.ones((), bool), *known])))

    def observe_gradient(state, gradient):
        inverse = grow(state.start, state.inverse, gradient)
        start = jax.tree.map(
            lambda top, g: jnp.where(top > 0, jnp.maximum(top, g**2), 0), state.start, gradient
        )
        state = DiagonalState(start, inverse, state.knows_all)
        return rarely(~state.knows_all, meet, state, gradient)

    def known_part(state, gradient):
        return jax.tree.map(lambda r, g: jnp.where(r > 0, g, 0), state.inverse, gradient)

    return _norm(init, observe_gradient, known_part)


def _norm(init, observe_gradient, known_part=None) -> VaryingNorm:
    def weights(state):
        return jax.tree.map(lambda r: _precision.ratio(jnp.ones_like(r), r), state.inverse)

    def to_dual(state, point):
        return jax.tree.map(jnp.multiply, weights(state), point)

    def to_primal(state, gradient):
        return jax.tree.map(jnp.multiply, gradient, state.inverse)

    def eigenbasis(state):
        return Eigenbasis(ravel_pytree(weights(state))[0], None)

    return VaryingNorm(
        init,
        observe_gradient,
        to_dual,
        to_primal,
        eigenbasis=eigenbasis,
        known_part=known_part,
        knows_all=None if known_part is None else lambda state: state.knows_all,
        inverse_weights=lambda state, dtype: state.inverse,
    )


def _fill(params, value):
    """Arrays of their own, so that all of the state can be donated."""
    return jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), value.dtype) + value, params)


def _reciprocal(weight):
    """Finite, also where a weight is next to nothing."""
    return 1 / jnp.maximum(weight, jnp.finfo(weight.dtype).tiny)
