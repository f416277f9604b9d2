"""Quadratic norms that know their matrix by the inverse only, in known or in learned units."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm._in_place import rarely, rarely_for_all
from optax_varynorm.norm_library import growing_inverse
from optax_varynorm.norm_library.first_seen import first_seen_squares
from optax_varynorm.norms import InverseMatrix, Reading, VaryingNorm


class Growing(NamedTuple):
    """The inverse ``Q`` of a matrix that grows with flat vectors (see ``growing_inverse``).

    Attributes:
      start: ``received_sum -> inverse`` before any vector, for a learner that received this sum.
      grow: ``(inverse, vector, products, share, fresh) -> inverse``.
      products: ``(inverse, vector) -> products``, whose ``total`` is ``Q vector``: where ``Q`` is a
        sum of inverses, the product with each of them.
      total: ``products -> Q vector``.
      dense: ``inverse -> Q``.
      block: ``(inverse, indices) ->`` these rows and columns of ``Q``, all of them if ``None``.
      diagonal: ``inverse ->`` the diagonal of ``Q``.
      leader: ``inverse -> Q`` times the sum that the learner received.
      growth: the matrix has no eigenvalue above ``growth(s)`` when the squared lengths of its
        vectors add up to ``s``.
    """

    start: Callable[[jax.Array], Any]
    grow: Callable
    products: Callable[[Any, jax.Array], jax.Array]
    total: Callable[[jax.Array], jax.Array]
    dense: Callable[[Any], jax.Array]
    block: Callable[[Any, jax.Array | None], jax.Array]
    diagonal: Callable[[Any], jax.Array]
    leader: Callable[[Any], jax.Array]
    growth: Callable[[jax.Array], jax.Array]


class KnownUnits(NamedTuple):
    """Attributes:
    received_sum: the sum of the gradients that the learner received, flat.
    inverse: the inverse.
    """

    received_sum: jax.Array
    inverse: Any


def in_known_units(growing: Growing) -> VaryingNorm:
    """The norm :math:`x^T Q^{-1} x`."""

    def init(params):
        zeros = jnp.zeros_like(ravel_pytree(params)[0])
        return KnownUnits(zeros, growing.start(zeros))

    def grow(state, seen: "Seen", share):
        return KnownUnits(
            state.received_sum + share * seen.known,
            growing.grow(state.inverse, seen.flat, seen.products, share, None),
        )

    def scaled(state):
        one = jnp.ones((), state.received_sum.dtype)
        return Scaled(state.inverse, one, one)

    return _norm(growing, init, grow, scaled, lambda state: True)


class CoordinateUnits(NamedTuple):
    """Attributes, all flat:
    units: what each coordinate is divided by, zero until its first nonzero gradient.
    largest_squares: the square of the largest gradient of each coordinate.
    weights: the diagonal of the norm's matrix.
    received_sum: the sum of the gradients that the learner received.
    inverse: the inverse in these units.
    """

    units: jax.Array
    largest_squares: jax.Array
    weights: jax.Array
    received_sum: jax.Array
    inverse: Any


def in_coordinate_units(growing: Growing, factor: float) -> VaryingNorm:
    r"""The norm :math:`x^\top M Q^{-1} M x`, ``M`` diagonal: ``factor`` times the first gradients.

    A coordinate enters the matrix when its first nonzero gradient arrives, which extends the
    inverse by one diagonal entry and changes nothing else. Points and gradients in other units
    (any diagonal rescaling) then meet the same norm.

    A coordinate's first gradient may be much smaller than those to come:

    * because the whole gradient is small just then: ``first_seen_squares`` makes up for that.
    * because of that coordinate alone. When a gradient outgrows the coordinate's weight a
      thousand times, the coordinate leaves the matrix and enters anew. All other units grow by a
      relative 2.4e-4 to make up for the lost cross terms, so the norms still increase.
    """

    def init(params):
        flat, _ = ravel_pytree(params)
        return CoordinateUnits(
            units=jnp.zeros_like(flat),
            largest_squares=jnp.zeros_like(flat),
            weights=jnp.zeros_like(flat),
            received_sum=jnp.zeros_like(flat),
            inverse=growing.start(jnp.zeros_like(flat)),
        )

    def restart_coordinate(_, carry):
        state, flat, _ = carry
        index = jnp.argmax(_precision.ratio(flat**2, state.weights))
        unit = factor * jnp.abs(flat[index])
        at_index = jnp.arange(flat.size) == index
        units = jnp.where(at_index, unit, growing_inverse.INFLATION * state.units)
        restarted = state._replace(
            units=units,
            weights=jnp.where(at_index, unit**2, growing_inverse.INFLATION**2 * state.weights),
            inverse=growing_inverse.restart_coordinate(
                state.inverse,
                index,
                state.received_sum[index] / unit,
                1 / growing_inverse.INFLATION,
            ),
        )
        return restarted, flat, products_of_known(restarted, flat)

    def products_of_known(state, flat):
        return growing.products(state.inverse, _precision.reciprocal(state.units) * flat)

    def grow(state, seen: "Seen", share):
        flat, known = seen.flat, state.units > 0
        outgrown = known & (flat**2 > growing_inverse.OUTGROWN * state.weights)
        # As many trips as there are such coordinates, mostly none: see `_in_place.rarely`.
        state, _, products = jax.lax.fori_loop(
            0,
            jnp.sum(outgrown, dtype=jnp.int32),
            restart_coordinate,
            (state, seen.known, seen.products),
        )
        squares = flat**2
        first = first_seen_squares(flat, state.largest_squares)
        units = jnp.where(known, state.units, factor * jnp.sqrt(first))
        vector = _precision.ratio(flat, units)
        fresh = jnp.where(known, 0, vector)  # the inverse is still the identity there
        return CoordinateUnits(
            units=units,
            largest_squares=jnp.where(known, jnp.maximum(state.largest_squares, squares), first),
            weights=jnp.where(known, state.weights, units**2) + squares,
            received_sum=state.received_sum + share * seen.known,
            inverse=growing.grow(state.inverse, vector, products + fresh, share, fresh),
        )

    def scaled(state):
        per_unit = _precision.reciprocal(state.units)
        return Scaled(state.inverse, per_unit, per_unit)

    return _norm(growing, init, grow, scaled, lambda state: state.units > 0)


class LearnedUnit(NamedTuple):
    """Attributes:
    unit: what gradients are divided by, zero until the first one; ``factor`` times the length of
      the last gradient that outweighed all before it.
    height: the other factor of the matrix: ``unit``, or the largest gradient's length.
    squares: the sum of the squared lengths of the gradients since then, in these units.
    received_sum: the sum of the gradients that the learner received, flat.
    inverse: the inverse in these units.
    """

    unit: jax.Array
    height: jax.Array
    squares: jax.Array
    received_sum: jax.Array
    inverse: Any


def in_learned_unit(growing: Growing, factor: float, follow_largest: bool) -> VaryingNorm:
    r"""The norm :math:`h m\, x^\top Q^{-1} x`, where ``m`` and ``h`` are lengths of gradients.

    Where a known Lipschitz bound ``L`` would stand, a multiple of the identity has to grow with the
    longest gradient. A gradient whose square exceeds the unit's and the sum of all squares since
    the last start starts the matrix afresh, at its own length: the multiple of the identity that
    then stands alone is above the whole matrix so far, so the norms increase, and by at most twice
    what was necessary. That costs O(d^2) and happens as often as the sum of squares doubles in one
    round.

    Args:
      growing: the inverse.
      factor: the unit, divided by the gradient's length.
      follow_largest: let the height grow with the largest gradient, as a root needs, whose matrix
        would otherwise grow too slowly to cover it.
    """

    def init(params):
        flat, _ = ravel_pytree(params)
        return LearnedUnit(
            unit=jnp.zeros((), flat.dtype),
            height=jnp.zeros((), flat.dtype),
            squares=jnp.zeros((), flat.dtype),
            received_sum=jnp.zeros_like(flat),
            inverse=growing.start(jnp.zeros_like(flat)),
        )

    def restart(measured, flat, length):
        state, _ = measured
        unit = factor * length
        # What the whole matrix so far may have reached, in units of the new one.
        reached = state.height * state.unit * growing.growth(state.squares)
        height = jnp.maximum(unit, reached / (unit * growing.growth(jnp.zeros_like(unit))))
        restarted = LearnedUnit(
            unit=unit,
            height=height,
            squares=jnp.zeros_like(unit),
            received_sum=state.received_sum,
            inverse=growing.start(state.received_sum / unit)._replace(
                pending_count=state.inverse.pending_count
            ),
        )
        return restarted, products_of(restarted, flat)

    def products_of(state, flat):
        return growing.products(state.inverse, 1 / _or_one(state.unit) * flat)

    def grow(state, seen: "Seen", share):
        flat = seen.flat
        length = _precision.length(flat)
        share = jnp.where(state.unit > 0, share, 0)
        outweighs = length > state.unit * jnp.sqrt(1 + state.squares)
        state, products = rarely(outweighs, restart, (state, seen.products), flat, length)
        vector = _precision.ratio(flat, state.unit)
        return LearnedUnit(
            unit=state.unit,
            height=jnp.maximum(state.height, length) if follow_largest else state.height,
            squares=state.squares + _precision.dot(vector, vector),
            received_sum=state.received_sum + share * seen.known,
            inverse=growing.grow(state.inverse, vector, products, share, None),
        )

    def scaled(state):
        # Before the first gradient any norm will do: nothing is learned in it.
        return Scaled(state.inverse, 1 / _or_one(state.unit), 1 / _or_one(state.height))

    return _norm(growing, init, grow, scaled, lambda state: state.unit > 0)


class Scaled(NamedTuple):
    """The inverse ``after * Q * before`` of a norm's matrix; equal factors if they are vectors."""

    inverse: Any
    before: Any
    after: Any


class Seen(NamedTuple):
    """A gradient and what it was measured by, flat.

    Attributes:
      flat: the gradient.
      known: its known part.
      products: of ``Q`` with that, in the norm's units.
    """

    flat: jax.Array
    known: jax.Array
    products: jax.Array


def _norm(growing, init, grow, scaled, is_known) -> VaryingNorm:
    """``to_dual`` costs O(d^3); an unconstrained learner does not need it."""

    def measure(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        usable = _precision.is_usable(_precision.dot(flat, flat))
        flat = jnp.where(usable, flat, 0)
        known = jnp.where(is_known(state), flat, 0)
        inverse, before, after = scaled(state)
        products = growing.products(inverse, before * known)
        square = jnp.maximum(_precision.dot(known, after * growing.total(products)), 0)
        seen = Seen(flat, known, products)
        return Reading(unravel(flat), unravel(known), square, usable, seen)

    def grow_if_any(state, reading):
        seen = reading.product
        if not seen.flat.size:
            return state
        return grow(state, seen, jnp.asarray(reading.share, seen.flat.dtype))

    def to_dual(state, point):
        flat, unravel = ravel_pytree(point)
        if not flat.size:
            return point
        inverse, before, after = scaled(state)
        solved = jnp.linalg.solve(growing.dense(inverse), flat * _precision.reciprocal(after))
        return unravel(solved * _precision.reciprocal(before))

    def to_primal(state, gradient):
        """Of the sum that the learner received it is known: one read of a matrix less a round."""
        flat, unravel = ravel_pytree(gradient)
        inverse, before, after = scaled(state)

        def is_another(leader, flat, received_sum, *_):
            return jnp.any(flat != received_sum)

        def product(leader, flat, received_sum, inverse, before):
            return growing.total(growing.products(inverse, before * flat))

        leader = growing.leader(inverse)
        found = (flat, state.received_sum, inverse, before)
        return unravel(after * rarely_for_all(is_another, product, leader, *found))

    def inverse(state):
        inverse, before, after = scaled(state)

        def block(indices):
            rows, columns = (
                factor if indices is None or not jnp.ndim(factor) else factor[indices]
                for factor in (after, before)
            )
            factors = jnp.outer(jnp.ravel(rows), jnp.ravel(columns))
            return growing.block(inverse, indices) * factors

        return InverseMatrix(after * before * growing.diagonal(inverse), block)

    return VaryingNorm(init, measure, grow_if_any, to_dual, to_primal, inverse=inverse)


def _or_one(number):
    return jnp.where(number > 0, number, 1)
