"""What the tests share: playing a stream of gradients, and streams to play."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import optax


class Game(NamedTuple):
    """``points[t]`` and ``states[t]`` are what round ``t + 1`` is played from; one more than T."""

    points: np.ndarray
    states: object

    @property
    def final_state(self):
        return jax.tree.map(lambda leaf: leaf[-1], self.states)


def play(optimizer, gradients, start) -> Game:
    """Play linear losses in one compiled scan, from a start of the same dtype as the gradients."""
    return jax.tree.map(np.asarray, _play(optimizer, gradients, start))


@functools.partial(jax.jit, static_argnums=0)
def _play(optimizer, gradients, start):
    def play_round(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        carry = (optax.apply_updates(params, updates), state)
        return carry, carry

    first = (start, optimizer.init(start))
    _, rest = jax.lax.scan(play_round, first, gradients)
    return Game(*jax.tree.map(lambda a, b: jax.numpy.concatenate([a[None], b]), first, rest))


@functools.partial(jax.jit, static_argnums=0)
def play_points(optimizer, gradients, start):
    """The points of rounds 1 to T alone, where states are too large to keep them all."""

    def play_round(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), params

    return jax.lax.scan(play_round, (start, optimizer.init(start)), gradients)[1]


def stream(kind: str, rounds: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Gradients of l_2 length one at most, float64."""
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(rounds, dimension))
    match kind:
        case "random":
            pass
        case "drifting":
            # Swings long enough for the wealth to grow, short enough for it not to explode.
            swing = np.sin(np.arange(rounds) / 20)[:, None] * np.linspace(1.0, 0.2, dimension)
            g = 0.5 * g + 0.7 * swing
        case "pushing":
            # A steady pull against one wall: for bounded domains, since wealth explodes elsewhere.
            g = 0.4 * g - 0.6
        case "sparse":
            g = g * (rng.random(size=g.shape) < 0.2)
        case "low_rank":
            rank = max(1, dimension // 4)
            g = g[:, :rank] @ rng.normal(size=(rank, dimension))
        case "sign_flipping":
            g = np.where(np.arange(rounds) % 2, 1.0, -1.0)[:, None] * g[:1]
        case "power_law":
            g = g * (np.arange(1, dimension + 1.0) ** -1.5)
        case "zero":
            g = 0 * g
        case "repeated":
            g = np.repeat(g[:1], rounds, axis=0)
        case _:
            raise ValueError(kind)
    lengths = np.linalg.norm(g, axis=1, keepdims=True)
    longest = np.max(lengths, initial=0.0)
    if kind in ("random", "sparse", "low_rank", "sign_flipping", "repeated"):
        return g / np.where(lengths > 0, lengths, 1)
    return g / (longest if longest > 0 else 1)


KINDS = (
    "random",
    "drifting",
    "sparse",
    "low_rank",
    "sign_flipping",
    "power_law",
    "zero",
    "repeated",
)
