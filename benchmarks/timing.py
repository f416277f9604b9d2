"""Interleaved timing: every program runs once a turn, and ratios are taken within a turn."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np


class Timing(NamedTuple):
    """``seconds[name]`` is a median; ``ratio(a, b)`` the median over turns of a's time over b's."""

    turns: dict[str, np.ndarray]
    rounds: dict[str, int]

    def seconds_a_round(self, name: str) -> float:
        return float(np.median(self.turns[name])) / self.rounds[name]

    def ratio(self, name: str, base: str) -> float:
        a, b = (self.turns[key] / self.rounds[key] for key in (name, base))
        return float(np.median(a / b))


def interleave(programs: dict[str, tuple[Callable, int]], turns: int) -> Timing:
    """Time programs (a function without arguments, and the rounds it plays), after one warm-up."""
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for program, _ in programs.values():
        jax.block_until_ready(program())
    for _ in range(turns):
        for name, (program, _) in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program())
            taken[name].append(time.perf_counter() - began)
    return Timing(
        {name: np.array(times) for name, times in taken.items()},
        {name: rounds for name, (_, rounds) in programs.items()},
    )
