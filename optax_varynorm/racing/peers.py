"""Who takes part: ours, Optax's learning-rate-free optimizers, and tuned ones.

A contender of kind ``untuned`` runs at its defaults. One of kind ``tuned`` runs at every learning
rate of a grid at once, and the best in hindsight counts.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

import optax_varynorm as vn

KINDS = ("ours", "untuned", "tuned")


class Contender(NamedTuple):
    """``make()`` gives the optimizer; ``make(learning_rate)`` if there are learning rates."""

    kind: str
    make: Callable[..., optax.GradientTransformation]
    learning_rates: tuple[float, ...] = ()

    @property
    def settings(self) -> str:
        """What a stored result depends on, besides the name."""
        return str(self.learning_rates)


# Mechanic learns a factor on its inner learning rate, which its docstring sets to one.
UNTUNED: dict[str, Callable[[], optax.GradientTransformation]] = {
    "cocob": optax.contrib.cocob,
    "dog": optax.contrib.dog,
    "dowg": optax.contrib.dowg,
    "prodigy": optax.contrib.prodigy,
    "mechanize(sgd(1.0))": lambda: optax.contrib.mechanize(optax.sgd(1.0)),
    "mechanize(adam(1.0))": lambda: optax.contrib.mechanize(optax.adam(1.0)),
}
TUNED = {"adam": optax.adam, "sgd": optax.sgd, "adagrad": optax.adagrad}


def half_decades(lowest: int, highest: int) -> tuple[float, ...]:
    """``half_decades(-1, 0)`` is 0.1, 0.316, 1."""
    return tuple(10 ** (k / 2) for k in range(2 * lowest, 2 * highest + 1))


# Raw units span many decades, and so do the best learning rates.
RAW_UNIT_RATES = half_decades(-8, 2)


def gather(
    ours: Iterable[str],
    variants: dict[str, Callable[[], optax.GradientTransformation]],
    learning_rates: tuple[float, ...],
) -> dict[str, Contender]:
    """All contenders by name, ours first.

    Args:
      ours: names in ``vn``, called without arguments; those it does not have are left out.
      variants: more of ours, by name.
      learning_rates: the grid of the tuned ones.
    """
    present = {name: getattr(vn, name) for name in ours if hasattr(vn, name)}
    contenders = {name: Contender("ours", make) for name, make in (present | variants).items()}
    contenders |= {name: Contender("untuned", make) for name, make in UNTUNED.items()}
    contenders |= {name: Contender("tuned", make, learning_rates) for name, make in TUNED.items()}
    return contenders


def in_order(contenders: dict) -> dict:
    """By kind: ours, untuned, tuned."""
    return dict(sorted(contenders.items(), key=lambda item: KINDS.index(item[1].kind)))


def play_grid(contender: Contender, play: Callable) -> Callable:
    """``play(optimizer, *arrays)`` for all learning rates at once, along a new first axis."""
    if not contender.learning_rates:
        return lambda *arrays: jax.tree.map(
            lambda leaf: leaf[None], play(contender.make(), *arrays)
        )
    rates = jnp.asarray(contender.learning_rates)
    return lambda *arrays: jax.vmap(lambda rate: play(contender.make(rate), *arrays))(rates)
