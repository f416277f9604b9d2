"""The online game as one compiled loop."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Game(NamedTuple):
    """What a game leaves behind.

    Attributes:
      params: the point after the last round.
      state: the optimizer's state after the last round.
      losses: the loss of each round, paid before it was learned from.
      rounds_per_second: of all chunks after the first, which compiles; of the first if it is alone.
    """

    params: optax.Params
    state: optax.OptState
    losses: jax.Array
    rounds_per_second: float


def play(
    optimizer: optax.GradientTransformation,
    loss: Callable[[optax.Params, Any], jax.Array],
    stream: Any,
    params: optax.Params,
    rounds_a_chunk: int = 1024,
    report: Callable[[str], None] | None = None,
) -> Game:
    """Predict, pay, learn, for every example of a stream.

    Rounds run in compiled chunks: parameters and state are donated from one chunk to the next,
    nothing is copied to the host in between, and all chunks but a shorter last one share one
    compilation.

    Args:
      optimizer: any Optax optimizer.
      loss: ``loss(params, example)``, differentiable in ``params``.
      stream: a tree of arrays with one row a round.
      params: where to start; left as they are.
      rounds_a_chunk: how many rounds run between two reports.
      report: called with a line after each chunk, such as ``print``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> rows = jnp.array([[0.6, 0.8], [0.8, -0.6]] * 50)
    >>> game = play(vn.full_matrix(), lambda w, f: jnp.abs(f @ w - 1), rows, jnp.zeros(2))
    >>> bool(game.losses[-1] < game.losses[0])
    True
    """
    rounds = {len(leaf) for leaf in jax.tree.leaves(stream)}
    if len(rounds) != 1 or not min(rounds):
        raise ValueError(
            f"All arrays of a stream need the same number of rows, at least one, not {rounds}."
        )
    (total,) = rounds
    optimizer = optax.with_extra_args_support(optimizer)

    def play_round(carry, example):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, example)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    @functools.partial(jax.jit, donate_argnums=0)
    def play_chunk(carry, examples):
        return jax.lax.scan(play_round, carry, examples)

    params = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), params)
    carry = (params, optimizer.init(params))
    losses, seconds = [], []
    for start in range(0, total, rounds_a_chunk):
        began = time.perf_counter()
        chunk = jax.tree.map(lambda leaf, i=start: leaf[i : i + rounds_a_chunk], stream)
        carry, values = jax.block_until_ready(play_chunk(carry, chunk))
        seconds.append((len(values), time.perf_counter() - began))
        losses.append(values)
        if report is not None:
            count, time_taken = seconds[-1]
            report(
                f"round {start + count} of {total}, loss {jnp.mean(values):.4g}, "
                f"{count / time_taken:,.0f} rounds a second"
            )
    timed = seconds[1:] or seconds
    speed = sum(count for count, _ in timed) / sum(time_taken for _, time_taken in timed)
    return Game(*carry, jnp.concatenate(losses), speed)
