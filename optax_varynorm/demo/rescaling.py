"""What happens when somebody changes the units of one column."""

from typing import NamedTuple

import numpy as np

from optax_varynorm.demo import race
from optax_varynorm.demo.streams import Stream, with_rescaled_column

FACTORS = np.array([1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6])
# The first: a radius.
COLUMN = 0


class Rescaled(NamedTuple):
    """Attributes:
    factors: what the column was multiplied by.
    losses: by learner, one a factor. Peers have the learning rate that was best before.
    """

    factors: np.ndarray
    losses: dict[str, np.ndarray]


def play(stream: Stream, results: list[race.Result], report=None) -> Rescaled:
    """Every learner of a race again, for every factor; nothing is compiled again.

    Args:
      results: of the race on the stream as it is.
    """
    losses = {result.learner: np.zeros(len(FACTORS)) for result in results}
    for index, factor in enumerate(FACTORS):
        other_units = with_rescaled_column(stream, COLUMN, factor)
        for result in results:
            if result.rates is None:
                again = race.play_ours(other_units, report)
            else:
                again = race.play_peer(result.learner, other_units, report)
            losses[result.learner][index] = again.mean_losses[result.best]
    return Rescaled(FACTORS, losses)
