"""Copies of a learner side by side, one for each part of the parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm._empty import nothing, size_of
from optax_varynorm.learners import Certified, displacement_of, slack_of
from optax_varynorm.norm_library.first_seen import SMALLEST_COORDINATE
from optax_varynorm.reductions.anchored import anchored_if_narrow

Stacks = tuple[jax.Array, ...]


class Parts(NamedTuple):
    """How a flat vector is cut: into stacks of parts, equal ones in one array.

    Attributes:
      stack: from a vector to arrays with one part a row.
      unstack: its inverse.
    """

    stack: Callable[[jax.Array], Stacks]
    unstack: Callable[[Stacks], jax.Array]


class PerPartState(NamedTuple):
    """Attributes:
    largest_entry: the largest entry of a gradient so far.
    was_met: for each stack, one for each part that has had a gradient.
    part_states: for each stack, the learners' states with one more axis.
    """

    largest_entry: jax.Array
    was_met: Stacks
    part_states: tuple[Any, ...]


def per_part(
    name: str,
    learner: optax.GradientTransformation,
    parts_of: Callable[[optax.Params], Parts],
    smallest_first=SMALLEST_COORDINATE,
) -> optax.GradientTransformationExtraArgs:
    """Run a copy of a learner on every part, equal ones at once by ``vmap``.

    A learner without a known Lipschitz bound measures gradients by its first one. A parameter whose
    gradient is nothing but rounding, such as a bias before a normalization, would take rounding for
    its unit, and go far away. So the first gradient of a part is enlarged, if it is smaller, to a
    ten-thousandth of the largest entry of any gradient so far. Certificates know.

    Args:
      name: for error messages.
      learner: of one part.
      parts_of: from a tree of parameters.
      smallest_first: that ten-thousandth; 0 hands on every gradient as it is.
    """
    learner_slack, learner_displacement = slack_of(learner), displacement_of(learner)
    learner = optax.with_extra_args_support(learner)

    def stack(tree):
        return parts_of(tree).stack(ravel_pytree(tree)[0])

    def unstack(stacks, like):
        return ravel_pytree(like)[1](parts_of(like).unstack(stacks))

    def init(params):
        if not size_of(params):
            return nothing()
        stacks = stack(params)
        return PerPartState(
            largest_entry=jnp.zeros((), _precision.working_dtype(params)),
            was_met=tuple(jnp.zeros(len(rows), jnp.int32) for rows in stacks),
            part_states=tuple(map(jax.vmap(learner.init), stacks)),
        )

    def enlarge_first(state, stacks):
        tops = [jnp.max(jnp.abs(rows).reshape(len(rows), -1), axis=1) for rows in stacks]
        finite = [jnp.max(jnp.where(jnp.isfinite(top), top, 0)) for top in tops]
        largest = jnp.max(jnp.stack([state.largest_entry, *finite]))
        least = jnp.asarray(smallest_first, largest.dtype) * largest

        def enlarge(rows, top, was_met):
            is_small_first = (was_met == 0) & (top > 0) & (top < least)
            factor = jnp.where(is_small_first, least / jnp.where(is_small_first, top, 1), 1)
            return rows * jnp.expand_dims(factor, range(1, rows.ndim))

        enlarged = tuple(map(enlarge, stacks, tops, state.was_met))
        was_met = tuple(
            jnp.maximum(met, (top > 0).astype(jnp.int32))
            for met, top in zip(state.was_met, tops, strict=True)
        )
        return enlarged, largest, was_met

    def update(updates, state, params, *, geometry=None, **extra_args):
        del geometry  # one of the whole space, which means nothing to one part
        if not size_of(params):
            return updates, state
        shapes = jax.tree.map(jnp.shape, params)
        shared = {
            name: stack(_precision.cast(value, _precision.working_dtype(params)))
            for name, value in extra_args.items()
            if jax.tree.map(jnp.shape, value) == shapes
        }
        whole = {name: value for name, value in extra_args.items() if name not in shared}

        def update_part(gradient, state, param, shared):
            return learner.update(gradient, state, param, **shared, **whole)

        gradients, largest, was_met = enlarge_first(state, stack(updates))
        own = [dict(zip(shared, rows, strict=True)) for rows in zip(*shared.values(), strict=True)]
        own = own or [{} for _ in gradients]
        stepped = map(jax.vmap(update_part), gradients, state.part_states, stack(params), own)
        steps, states = zip(*stepped, strict=True)
        return unstack(steps, params), PerPartState(largest, was_met, states)

    def slack(state, comparator, *_):
        slacks = map(jax.vmap(learner_slack), state.part_states, stack(comparator))
        return sum(map(jnp.sum, slacks), start=jnp.zeros((), _precision.working_dtype(comparator)))

    def displacement(state, params, *_):
        assert learner_displacement is not None
        moved = map(jax.vmap(learner_displacement), state.part_states, stack(params))
        return unstack(tuple(moved), params)

    all_parts = Certified(
        _precision.in_working_precision(name, init, update),
        slack,
        displacement=learner_displacement and displacement,
    )
    return anchored_if_narrow(all_parts)


def require_part(smallest_first) -> None:
    _arguments.require(
        smallest_first,
        lambda number: (number >= 0) & (number <= 1),
        f"`smallest_first` is a part of the largest gradient, in [0, 1], not {smallest_first}.",
    )
