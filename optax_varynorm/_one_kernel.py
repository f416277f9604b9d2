"""A loop of small rounds as one kernel of XLA's CPU backend."""

import functools
from collections.abc import Callable

import jax
from jax.experimental.xla_metadata import set_xla_metadata


def one_kernel(function: Callable) -> Callable:
    """The function, compiled for a CPU as one kernel, loops included; as it is elsewhere.

    XLA's CPU backend starts a kernel for each of a round's few dozen operations, which takes longer
    than operations on a few hundred numbers do. It compiles what it knows to be small, such as the
    loop inside of a scatter, as a single kernel, and a call can say that it is. In such a kernel
    there must be no product of matrices, no sort and no scatter, and nothing runs in parallel.

    Args:
      function: of arrays.
    """

    @functools.wraps(function)
    def call(*arguments):
        if jax.default_backend() != "cpu":
            return function(*arguments)
        with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
            return jax.jit(function)(*arguments)

    return call
