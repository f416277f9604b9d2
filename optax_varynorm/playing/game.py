"""The host's part of a game: chunk after chunk, with progress in between."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from optax_varynorm.playing import rounds
from optax_varynorm.playing.history import History, Record


class Game(NamedTuple):
    """What a game leaves behind. Those of a sweep have its axes in front.

    Attributes:
      params: the point after the last round.
      state: the optimizer's state after the last round.
      history: losses, regret, wealth and more, by round.
      seconds_to_first_chunk: until the first chunk was played; compiling is most of it.
      rounds_per_second: of all runs together, in all chunks after the first; in the first, with
        compiling, if it is alone.
    """

    params: optax.Params
    state: optax.OptState
    history: History
    seconds_to_first_chunk: float
    rounds_per_second: float

    @property
    def losses(self) -> np.ndarray:
        """The loss of each round, paid before it was learned from."""
        return self.history.losses


class Progress(NamedTuple):
    """Where a game is after a chunk; ``print`` shows it as a line.

    Attributes:
      rounds_played: in each run.
      total_rounds: in each run.
      loss: the mean of the chunk, of the run where it is lowest.
      rounds_per_second: of all runs together, in the chunk.
    """

    rounds_played: int
    total_rounds: int
    loss: float
    rounds_per_second: float

    def __str__(self):
        return (
            f"round {self.rounds_played} of {self.total_rounds}, loss {self.loss:.4g}, "
            f"{self.rounds_per_second:,.0f} rounds a second"
        )


Report = Callable[[Progress], None]


def run(
    rules: rounds.Rules,
    hyperparameters: dict[str, Any],
    played: rounds.Played,
    examples_of: Callable[[np.ndarray], Any],
    total: int,
    comparator: optax.Params | None,
    rounds_a_chunk: int,
    report: Report | None,
) -> Game:
    """All chunks of a game.

    Args:
      examples_of: the examples of an array of rounds, then by seed if the rules say so.
    """
    records: list[Record] = []
    bounds: list[Any] = []
    ends: list[int] = []
    seconds: list[float] = []
    for first in range(0, total, rounds_a_chunk):
        began = time.perf_counter()
        count = min(rounds_a_chunk, total - first)
        # All chunks have one shape. The last row has no next, and stands in for it.
        rows = np.minimum(np.arange(first, first + rounds_a_chunk + 1), total - 1)
        played, record, bound = jax.block_until_ready(
            rounds.play_chunk(rules, hyperparameters, played, examples_of(rows), count, comparator)
        )
        records.append(jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[..., :n], record))
        bounds.append(bound)
        ends.append(first + count)
        seconds.append(time.perf_counter() - began)
        if report is not None:
            losses = records[-1].losses
            loss = float(np.fmin.reduce(np.mean(losses, axis=-1), axis=None))
            report(Progress(ends[-1], total, loss, losses.size / seconds[-1]))
    timed = slice(1, None) if len(seconds) > 1 else slice(None)
    speed = sum(record.losses.size for record in records[timed]) / sum(seconds[timed])
    return Game(
        params=played.params,
        state=played.state,
        history=_join(records, bounds, ends),
        seconds_to_first_chunk=seconds[0],
        rounds_per_second=speed,
    )


def _join(records: list[Record], bounds: list, ends: list[int]) -> History:
    together = jax.tree.map(lambda *chunks: np.concatenate(chunks, axis=-1), *records)
    bound = None if bounds[0] is None else np.stack([np.asarray(b) for b in bounds], axis=-1)
    return History(**together._asdict(), bound=bound, bound_rounds=np.array(ends))


def require_same_rows(stream: Any) -> int:
    """The number of rounds of a stream."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(stream)]
    found = {shape[0] if shape else 0 for shape in shapes}
    if len(found) != 1 or 0 in found:
        raise ValueError(
            "All arrays of a stream need the same number of rows, at least one, not those of "
            f"shapes {shapes}."
        )
    return found.pop()
