"""Small operations that a CPU runs one after another."""

import functools
from collections.abc import Callable

import jax
from jax.experimental.xla_metadata import set_xla_metadata


def one_sequence(function: Callable) -> Callable:
    """The function, on a CPU compiled apart from what is around it; as it is elsewhere.

    XLA's CPU backend runs the operations of a loop's body or a branch through a queue and several
    threads, which takes longer than operations on a few dozen numbers do, unless they are few or
    all their arrays are short. A function that is kept apart is looked at by itself.

    Args:
      function: from trees of arrays to a tree of arrays. It may use arrays from outside.
    """

    def merged(*arguments):
        with set_xla_metadata(inlineable="true"):
            return function(*arguments)

    @functools.wraps(function)
    def call(*arguments):
        if jax.default_backend() != "cpu":
            return function(*arguments)
        with set_xla_metadata(inlineable="false"):
            return jax.jit(merged)(*arguments)

    return call
