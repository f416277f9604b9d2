"""The compiled part of a game: a chunk of rounds, for one run or for many."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm.playing.history import known_bound, record_round


class Rules(NamedTuple):
    """What a compiled game depends on beside shapes: equal rules share one compilation.

    Attributes:
      make_optimizer: an optimizer, from numbers that are traced.
      loss: ``loss(params, example)``.
      features: what a linear model's learner is told of an example; ``None`` for other learners.
      has_settings: whether hyperparameters, parameters and state have an axis of settings.
      has_seeds: whether parameters and state have an axis of seeds after that one, and examples
        one after that of rounds: all seeds' rows of a round lie together in memory.
    """

    make_optimizer: Callable[..., optax.GradientTransformation]
    loss: Callable
    features: Callable | None
    has_settings: bool = False
    has_seeds: bool = False


@dataclasses.dataclass(frozen=True)
class Always:
    """The maker of one optimizer. Two around the same one are equal, and so are their rules."""

    optimizer: optax.GradientTransformation

    def __call__(self) -> optax.GradientTransformation:
        return self.optimizer


class Played(NamedTuple):
    """Attributes:
    params: the next point.
    state: of the optimizer.
    """

    params: optax.Params
    state: optax.OptState


def start(rules: Rules, hyperparameters: dict[str, Any], params: optax.Params) -> Played:
    """Before the first round of one run."""
    params = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), params)
    return Played(params, rules.make_optimizer(**hyperparameters).init(params))


@functools.partial(jax.jit, static_argnums=(0, 3))
def start_many(rules, hyperparameters, params, seeds) -> Played:
    """Before the first round of all runs, each with a copy of the parameters."""

    def start_one(hyperparameters):
        return start(rules, hyperparameters, params)

    if rules.has_seeds:
        start_one = jax.vmap(start_one, in_axes=None, axis_size=seeds)
    if rules.has_settings:
        start_one = jax.vmap(start_one)
    return start_one(hyperparameters)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def play_chunk(rules, hyperparameters, played, examples, count, comparator):
    """Predict, pay, learn, ``count`` times.

    Args:
      examples: one row more than a chunk has rounds, for the last one's next features.

    Returns:
      What was played, the records of all rounds (zeros after ``count``), and the regret's bound.
    """

    def play_run(hyperparameters, played, examples):
        optimizer = optax.with_extra_args_support(rules.make_optimizer(**hyperparameters))

        def play_round(params, state, index):
            example = _row(examples, index)
            loss, gradient = jax.value_and_grad(rules.loss)(params, example)
            known = {}
            if rules.features is not None:
                known = {
                    "features": rules.features(example),
                    "next_features": rules.features(_row(examples, index + 1)),
                }
            updates, state = optimizer.update(gradient, state, params, **known)
            return (
                optax.apply_updates(params, updates),
                state,
                record_round(loss, state, comparator),
            )

        def step(index, carry):
            params, state, records = carry
            params, state, record = play_round(params, state, index)
            records = jax.tree.map(lambda all_, one: all_.at[index].set(one), records, record)
            return params, state, records

        # A loop of `count` trips rather than a scan: a shorter last chunk compiles nothing.
        _, _, record = jax.eval_shape(play_round, *played, jnp.zeros((), jnp.int32))
        rounds = len(jax.tree.leaves(examples)[0]) - 1
        records = jax.tree.map(lambda one: jnp.zeros((rounds, *one.shape), one.dtype), record)
        params, state, records = jax.lax.fori_loop(0, count, step, (*played, records))
        return Played(params, state), records, known_bound(optimizer, state, comparator)

    if rules.has_seeds:
        play_run = jax.vmap(play_run, in_axes=(None, 0, 1))
    if rules.has_settings:
        play_run = jax.vmap(play_run, in_axes=(0, 0, None))
    return play_run(hyperparameters, played, examples)


def _row(examples, index):
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), examples
    )
