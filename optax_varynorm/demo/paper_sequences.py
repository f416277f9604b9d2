"""The paper's example (``sec:adagrad``) and two variants of it: no norm is best on all."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import optax_varynorm as vn

DIMENSION, ROUNDS = 64, 768
# What plays: inside the unit ball, told that gradients have length one, as in the paper.
LEARNERS: dict[str, Callable] = {
    "fixed_norm": vn.fixed_norm,
    "full_matrix": vn.full_matrix,
    "full_matrix_adagrad": vn.full_matrix_adagrad,
    "varynorm": vn.varynorm,
}
SEQUENCES: dict[str, Callable] = {
    "sec:adagrad": functools.partial(vn.certificates.sec_adagrad, DIMENSION, ROUNDS),
    "low rank": functools.partial(
        vn.certificates.sec_adagrad, DIMENSION, ROUNDS, start_directions=8
    ),
    "drift": functools.partial(vn.certificates.sec_adagrad, DIMENSION, ROUNDS, drift=0.5**0.5),
}


class Outcome(NamedTuple):
    """Attributes:
    sequence: its name.
    learner: its name.
    regret: after the last round, against the best point of the ball.
    bound: the certified bound of it, for the norms and gradients that occurred.
    game: with both by round in its history.
    """

    sequence: str
    learner: str
    regret: float
    bound: float
    game: vn.Game


def linear_loss(params, gradient):
    """The paper's losses: their gradients are the sequence."""
    return gradient @ params


def play(report=None, rounds_a_chunk: int = 64) -> list[Outcome]:
    """Every learner on every sequence, against the best point of the unit ball in hindsight.

    Args:
      report: called with the learner, the sequence and a ``Progress``.
    """
    outcomes = []
    for learner, make in LEARNERS.items():
        optimizer = vn.track_regret(make(lipschitz=1.0, domain=vn.l2_ball(1.0)))
        for sequence, draw in SEQUENCES.items():
            gradients = np.asarray(draw(), np.float32)
            total = np.sum(gradients, axis=0, dtype=np.float64)
            best = jnp.asarray(-total / np.linalg.norm(total), jnp.float32)
            game = vn.play(
                optimizer,
                linear_loss,
                gradients,
                jnp.zeros(DIMENSION),
                rounds_a_chunk,
                None if report is None else functools.partial(report, learner, sequence),
                comparator=best,
            )
            regret = float(vn.regret(game.state, best))
            bound = float(vn.regret_bound(optimizer, game.state, best))
            outcomes.append(Outcome(sequence, learner, regret, bound, game))
    return sorted(outcomes, key=lambda outcome: list(SEQUENCES).index(outcome.sequence))
