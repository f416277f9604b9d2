"""Work whose length differs from case to case, in a batch."""

from collections.abc import Callable

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun


def one_by_one(function: Callable) -> Callable:
    """The function; batched by ``vmap`` on a CPU, a loop over the batch.

    Loops and branches that end early for one and late for another run as long as the latest of a
    batch, and all branches of a batched ``switch`` run. Where a batch runs in parallel that is the
    price; a CPU has no such lanes, and a loop takes each case by itself for no more than alone.

    Args:
      function: from trees of arrays to a tree of arrays. It may use arrays from outside, batched
        ones too.
    """

    def call(*arguments):
        if jax.default_backend() != "cpu":
            return function(*arguments)
        leaves, structure = jax.tree.flatten(arguments)
        # What the function uses from outside becomes an argument: a rule for `vmap` sees no other.
        traced, shape = jax.make_jaxpr(
            lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), return_shape=True
        )(*leaves)

        def run_alone(outside, leaves):
            return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, outside))(*leaves)

        run = jax.custom_batching.custom_vmap(run_alone)

        @run.def_vmap
        def run_batch(axis_size, is_batched, *arguments):
            del axis_size
            leaves, structure = jax.tree.flatten(arguments)
            flags = jax.tree.leaves(tuple(is_batched))
            batch = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]
            if not batch:
                # Derivatives in many directions at once, at a point that is not batched.
                results = run_alone(*arguments)
                return results, jax.tree.map(lambda _: False, results)

            def run_one(members):
                ours = iter(members)
                each = [
                    next(ours) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)
                ]
                return run(*jax.tree.unflatten(structure, each))

            results = jax.lax.map(run_one, batch)
            return results, jax.tree.map(lambda _: True, results)

        return jax.tree.unflatten(jax.tree.structure(shape), run(traced.consts, leaves))

    return call
