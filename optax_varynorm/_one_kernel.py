"""A loop of small rounds as one kernel of XLA's CPU backend."""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

from optax_varynorm._reading import reads


def one_kernel(function: Callable) -> Callable:
    """The function, compiled for a CPU as one kernel, loops included; as it is elsewhere.

    XLA's CPU backend starts a kernel for each of a round's few dozen operations, which takes longer
    than operations on a few hundred numbers do. It compiles what it knows to be small, such as the
    loop inside of a scatter, as a single kernel, and a call can say that it is. In such a kernel
    there must be no product of matrices, no sort and no scatter, and nothing runs in parallel.

    Args:
      function: of arrays. It must not hand any of them on as it is: a kernel has no place for that.
    """

    @functools.wraps(function)
    def call(*arguments):
        if jax.default_backend() != "cpu":
            return function(*arguments)
        leaves, structure = jax.tree.flatten(arguments)
        # Nor for one that it does not read.
        is_read = reads(function, *arguments)

        def inside(*read):
            rest = iter(read)
            filled = [
                next(rest) if needed else np.zeros(leaf.shape, leaf.dtype)
                for needed, leaf in zip(is_read, leaves, strict=True)
            ]
            # Or else calls in it, such as `jnp.where`, would be kept apart as well.
            with set_xla_metadata(xla_cpu_small_call="false", inlineable="true"):
                return function(*jax.tree.unflatten(structure, filled))

        read = [leaf for needed, leaf in zip(is_read, leaves, strict=True) if needed]
        with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
            return jax.jit(inside)(*read)

    return call
