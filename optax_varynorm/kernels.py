"""A loop of small rounds as one kernel of XLA's CPU backend."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.interpreters.partial_eval import dce_jaxpr

from optax_varynorm._batches import batched_by

# What eight models of a hundred features know stays in the processor's cache, and fewer would leave
# vector registers idle.
MOST_IN_A_KERNEL = 8
# A sum of so many numbers does not compile in a kernel.
TOO_LONG_A_SUM = 4096
# So many numbers are copied in less time than a kernel takes to start.
MOST_COPIED = 1024


def one_kernel(function: Callable) -> Callable:
    """The function, compiled for a CPU as one kernel, loops included; as it is elsewhere.

    XLA's CPU backend starts a kernel for each of a round's few dozen operations, which takes longer
    than operations on a few hundred numbers do. It compiles what it knows to be small, such as the
    loop inside of a scatter, as a single kernel, and a call can say that it is. Use it under
    ``jit`` for loops whose rounds are small, as those of ``sparse_predict_then_update`` are.
    Batched by ``vmap``, eight members are a kernel, and the kernels run one after another.

    Nothing in a kernel runs in parallel, and XLA does not compile there what it leaves to libraries
    or makes parallel: products of matrices, sorts, linear algebra, callbacks, indexed updates
    (``.at[i].set``) under ``vmap``, and sums of 4,096 numbers or more, those of all members of a
    kernel taken together. Leave such work outside: return the losses, and take their mean there.
    Derivatives are forward ones only (``jax.jvp``), as those of ``while_loop`` are, and are not
    kernels.

    Args:
      function: from trees of arrays to a tree of arrays. It may use arrays from outside.

    >>> import jax, jax.numpy as jnp, optax_varynorm as vn
    >>> def decayed_sum(numbers):
    ...     return jax.lax.scan(lambda total, x: (total / 2 + x, total), 0.0, numbers)[0]
    >>> float(jax.jit(vn.one_kernel(decayed_sum))(jnp.ones(100)))
    2.0
    >>> jax.jit(jax.vmap(vn.one_kernel(decayed_sum)))(jnp.ones((10, 100))).shape
    (10,)
    """

    def run_batch(each, batch):
        if not len(batch[0]):
            return jax.vmap(each)(*batch)
        several = one_kernel(jax.vmap(each))
        in_blocks = len(batch[0]) // MOST_IN_A_KERNEL * MOST_IN_A_KERNEL
        parts = []
        if in_blocks:
            blocks = [
                array[:in_blocks].reshape(
                    in_blocks // MOST_IN_A_KERNEL, MOST_IN_A_KERNEL, *array.shape[1:]
                )
                for array in batch
            ]
            results = jax.lax.map(lambda block: several(*block), blocks)
            parts.append([array.reshape(in_blocks, *array.shape[2:]) for array in results])
        if in_blocks < len(batch[0]):
            parts.append(several(*(array[in_blocks:] for array in batch)))
        return [*map(lambda *arrays: jnp.concatenate(arrays), *parts)]

    run = batched_by(
        run_batch,
        _calls_inside_merged(lambda arguments, keywords: function(*arguments, **keywords)),
        _call_kernel,
    )

    @functools.wraps(function)
    def call(*arguments, **keywords):
        return run(arguments, keywords)

    return call


def _calls_inside_merged(function):
    """Or else calls in the kernel, such as ``jnp.where``, would be kept apart as well."""

    def merged(*arguments):
        with set_xla_metadata(xla_cpu_small_call="false", inlineable="true"):
            return function(*arguments)

    return merged


def _call_kernel(function, *arrays):
    @jax.custom_jvp
    def call(*arrays):
        return _call_alone(function, *arrays)

    @call.defjvp
    def differentiate(arrays, directions):
        # Not in a kernel: it would have arrays that it does not read.
        return call(*arrays), jax.jvp(function, arrays, directions)[1]

    return call(*arrays)


def _call_alone(function, *arrays):
    # XLA aborts the process if nothing in a kernel uses one of its arrays, hence only those that
    # the function reads, and those handed back.
    is_read = _reads(function, *arrays)

    def of_read(*read):
        rest = iter(read)
        flagged = zip(arrays, is_read, strict=True)
        results = function(
            *(next(rest) if flag else np.zeros(array.shape, array.dtype) for array, flag in flagged)
        )
        # Behind a barrier, or JAX would see that they are the arguments, and not hand them back.
        return results, jax.lax.optimization_barrier(_handed_back(read, results))

    # It does as well if a large constant is given to a kernel: behind the barrier it is none.
    read = jax.lax.optimization_barrier(
        [array for array, flag in zip(arrays, is_read, strict=True) if flag]
    )
    with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
        # Behind a barrier JAX does not see that what is handed back has no use.
        return jax.lax.optimization_barrier(jax.jit(of_read)(*read))[0]


def _handed_back(arrays, results):
    """The arrays that a kernel has among its results, so that XLA cannot drop them.

    It drops what cannot matter, such as an index into an axis of length one. Not those that a long
    result may be written over: they would be copied first.
    """
    kinds = map(jax.typeof, results)
    long = {(kind.shape, kind.dtype) for kind in kinds if kind.size > MOST_COPIED}
    return [array for array in arrays if (array.shape, array.dtype) not in long]


def _reads(function, *arrays) -> list[bool]:
    """Whether the result depends on each array: what a ``while_loop`` is given, it reads."""
    jaxpr = jax.make_jaxpr(function)(*arrays).jaxpr
    return dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1]
