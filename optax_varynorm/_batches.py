"""How a CPU runs a batch of something."""

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

    def run_batch(each, batch):
        return jax.lax.map(lambda members: one_by_one(each)(*members), batch)

    return batched_by(run_batch, function)


def batched_by(
    run_batch: Callable, function: Callable, run_alone: Callable | None = None
) -> Callable:
    """The function, and on a CPU what ``vmap`` makes of it.

    Args:
      run_batch: ``results = run_batch(each, batch)``, with a list of the batched arrays, and the
        function of one member of each.
      function: from trees of arrays to a tree of arrays. It may use arrays from outside, batched
        ones too.
      run_alone: ``results = run_alone(function, *arrays)``, where it is not batched.
    """
    run_alone = run_alone or (lambda function, *arrays: function(*arrays))

    def call(*arguments):
        if jax.default_backend() != "cpu":
            return function(*arguments)
        leaves, structure = jax.tree.flatten(arguments)
        # What the function uses from outside becomes an argument: a rule for `vmap` sees no other.
        traced, shape = jax.make_jaxpr(
            lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), return_shape=True
        )(*leaves)

        def of_arrays(*arrays):
            outside = arrays[: len(traced.consts)]
            return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, outside))(*arrays[len(outside) :])

        run = jax.custom_batching.custom_vmap(lambda *arrays: run_alone(of_arrays, *arrays))

        @run.def_vmap
        def run_all(axis_size, is_batched, *arrays):
            del axis_size
            batch = [array for array, flag in zip(arrays, is_batched, strict=True) if flag]
            if not batch:
                # Derivatives in many directions at once, at a point that is not batched.
                results = run_alone(of_arrays, *arrays)
                return results, jax.tree.map(lambda _: False, results)

            def each(*members):
                ours = iter(members)
                flagged = zip(arrays, is_batched, strict=True)
                return of_arrays(*(next(ours) if flag else array for array, flag in flagged))

            results = run_batch(each, batch)
            return results, jax.tree.map(lambda _: True, results)

        return jax.tree.unflatten(jax.tree.structure(shape), run(*traced.consts, *leaves))

    return call
