"""Many runs of the online game at once: seeds, hyperparameters, or both."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from optax_varynorm.playing import rounds
from optax_varynorm.playing.game import Game, Report, require_same_rows, run


def sweep(
    make_optimizer: Callable[..., optax.GradientTransformation],
    loss: Callable[[optax.Params, Any], jax.Array],
    stream: Any,
    params: optax.Params,
    rounds_a_chunk: int = 1024,
    report: Report | None = None,
    *,
    seeds: int | Sequence[int] | np.ndarray | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    comparator: optax.Params | None = None,
    features: Callable[[Any], optax.Params] | None = None,
) -> Game:
    """``play`` for all seeds and all settings of the hyperparameters, in one compiled program.

    What the game leaves behind has an axis of settings if there are hyperparameters, then one of
    seeds if there are seeds, in front of what ``play`` returns. A second sweep with the same
    functions compiles nothing, whatever its numbers.

    Args:
      make_optimizer: such as ``optax.adam`` or ``vn.full_matrix``; called with one setting of the
        hyperparameters, whose numbers are traced.
      loss: as for ``play``.
      stream: a tree of arrays with one row a round, which each seed shuffles and no seed leaves as
        it is. Or ``stream(key)``, which draws such a tree; it needs seeds.
      params: where all runs start; left as they are.
      rounds_a_chunk: as for ``play``.
      report: as for ``play``.
      seeds: integers, one ``jax.random.key`` each; ``8`` stands for 0 to 7.
      hyperparameters: arrays of one length, one entry a setting:
        ``{"learning_rate": jnp.geomspace(1e-4, 1, 9)}``. For a grid of two take ``meshgrid`` and
        flatten it.
      comparator: as for ``play``, one for all runs.
      features: as for ``play``.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> rows = jnp.array([[0.6, 0.8], [0.8, -0.6]] * 50)
    >>> rates = {"learning_rate": jnp.array([0.01, 0.1, 1.0])}
    >>> def loss(w, f):
    ...     return jnp.abs(f @ w - 1)
    >>> game = sweep(optax.sgd, loss, rows, jnp.zeros(2), seeds=4, hyperparameters=rates)
    >>> game.losses.shape
    (3, 4, 100)
    """
    settings = _require_settings(hyperparameters)
    rules = rounds.Rules(
        make_optimizer, loss, features, hyperparameters is not None, seeds is not None
    )
    numbers = np.arange(seeds) if isinstance(seeds, int) else seeds
    examples_of, total = _draw(stream, numbers)
    # Numbers that are traced pass all checks unseen, so each setting is made once as it is.
    optimizers = [make_optimizer(**setting) for setting in settings]
    optimizers[0].init(params)  # not compiled, so that a start outside the domain is seen
    traced = {name: jnp.asarray(values) for name, values in (hyperparameters or {}).items()}
    played = rounds.start_many(rules, traced, params, None if numbers is None else len(numbers))
    return run(rules, traced, played, examples_of, total, comparator, rounds_a_chunk, report)


def _require_settings(hyperparameters) -> list[dict[str, Any]]:
    if hyperparameters is None:
        return [{}]
    lengths = {name: np.shape(values)[:1] for name, values in hyperparameters.items()}
    if len(set(lengths.values())) != 1 or lengths[next(iter(lengths))] in ((), (0,)):
        raise ValueError(
            "`hyperparameters` must be arrays of one length, one entry a setting, such as "
            f"{{'learning_rate': jnp.geomspace(1e-4, 1, 9)}}, not of lengths {lengths}."
        )
    columns = {name: np.asarray(values) for name, values in hyperparameters.items()}
    (count,) = next(iter(lengths.values()))
    return [{name: values[i] for name, values in columns.items()} for i in range(count)]


def _draw(stream, seeds):
    """What each seed plays, as a function of rounds; and how many rounds there are."""
    if seeds is None:
        if callable(stream):
            raise ValueError(
                "`stream` is a function of a key, so `sweep` needs `seeds`, such as 8."
            )
        total = require_same_rows(stream)
        return lambda rows: _take(stream, rows), total
    if not len(seeds):
        raise ValueError("`seeds` must have at least one seed, such as `seeds=8` for 0 to 7.")
    if callable(stream):
        drawn = _for_each_seed(stream, jnp.asarray(seeds))
        return lambda rows: _take(drawn, rows), require_same_rows(drawn)
    total = require_same_rows(stream)
    orders = np.asarray(_for_each_seed(_Permutation(total), jnp.asarray(seeds)))
    return lambda rows: _take(stream, orders[rows]), total


@jax.jit
def _take(stream, rows):
    """Rows that are all there: nothing is checked or wrapped around."""
    return jax.tree.map(lambda leaf: jnp.take(leaf, rows, axis=0, mode="clip"), stream)


@functools.partial(jax.jit, static_argnums=0)
def _for_each_seed(draw, seeds):
    """What is drawn, by round and then by seed."""
    return jax.vmap(lambda seed: draw(jax.random.key(seed)), out_axes=1)(seeds)


@dataclasses.dataclass(frozen=True)
class _Permutation:
    """Draws an order of so many rows; equal ones share a compilation."""

    rows: int

    def __call__(self, key):
        return jax.random.permutation(key, self.rows)
