"""One run of the online game."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from optax_varynorm.playing import rounds
from optax_varynorm.playing.game import Game, Report, require_same_rows, run


def play(
    optimizer: optax.GradientTransformation,
    loss: Callable[[optax.Params, Any], jax.Array],
    stream: Any,
    params: optax.Params,
    rounds_a_chunk: int = 1024,
    report: Report | None = None,
    *,
    comparator: optax.Params | None = None,
    features: Callable[[Any], optax.Params] | None = None,
) -> Game:
    """Predict, pay, learn, for every example of a stream.

    Rounds run in compiled chunks: parameters and state are donated from one chunk to the next, and
    only what the history keeps comes back in between. All chunks share one compilation, and so do
    all games of one optimizer and one loss, whatever their length.

    Args:
      optimizer: any Optax optimizer.
      loss: ``loss(params, example)``, differentiable in ``params``.
      stream: a tree of arrays with one row a round.
      params: where to start; left as they are.
      rounds_a_chunk: how many rounds run between two reports, and between two bounds.
      report: called with a ``Progress`` after each chunk, such as ``print``.
      comparator: ``u``, a tree like the parameters, whose regret goes into the history. The
        optimizer must be one that ``track_regret`` wraps.
      features: for optimizers of linear models, ``features(example)``, which they are told before
        they predict. In the last round there is no next example, and its own stands in for it.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> rows = jnp.array([[0.6, 0.8], [0.8, -0.6]] * 50)
    >>> game = play(vn.full_matrix(), lambda w, f: jnp.abs(f @ w - 1), rows, jnp.zeros(2))
    >>> bool(game.losses[-1] < game.losses[0])
    True
    """
    total = require_same_rows(stream)
    rules = rounds.Rules(rounds.Always(optimizer), loss, features)
    # Not compiled, so that a start outside the domain is seen.
    played = rounds.start(rules, {}, params)

    def examples_of(rows):
        return jax.tree.map(lambda leaf: leaf[rows], stream)

    return run(rules, {}, played, examples_of, total, comparator, rounds_a_chunk, report)
