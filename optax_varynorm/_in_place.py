"""An order of events that XLA can prove, so that it works in place and skips rare work.

The cost of a round is the memory it moves. XLA writes a new array of the state over the old one if
the last reader of the old one provably comes before, and copies otherwise. It leaves rare work
alone if nothing of it can be computed ahead.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def rarely(condition: jax.Array | np.bool_, function: Callable, state: Any, *inputs: Any) -> Any:
    """``function(state, *inputs)`` if the condition holds, else the state as it is.

    A loop of one trip or none, where others write ``cond``: it updates the state in place, and
    batched by ``vmap`` it still runs only when one of the batch must, while a batched ``cond``
    always runs. It ends by a flag: what depends on the inputs alone XLA computes before a counted
    loop (``fori_loop``), and so in every round.

    Args:
      condition: a boolean scalar; NumPy's, if it is known beforehand.
      function: from a state and inputs to a state.
      state: a tree of arrays.
      inputs: trees of arrays that the function reads only.
    """
    if isinstance(condition, np.bool_) and not condition:
        return state

    def trip(carry):
        is_due, state = carry
        return jnp.zeros_like(is_due), function(state, *inputs)

    return jax.lax.while_loop(lambda carry: carry[0], trip, (condition, state))[1]


def rarely_for_all(is_due: Callable, function: Callable, state: Any, *inputs: Any) -> Any:
    """``function(state, *inputs)`` if it is due, for work that does no harm where it is not.

    Batched by ``vmap``, all of a batch run when one is due. ``rarely`` would keep the states that
    are not: that takes a copy of all states before, and a choice between two for every number.

    Args:
      is_due: from a state and inputs to a boolean scalar.
      function: from a state and inputs to a state, which is as good as before if it was not due.
      state: a tree of arrays.
      inputs: trees of arrays that the function reads only.
    """

    def run_alone(state, inputs):
        return rarely(jnp.any(is_due(state, *inputs)), function, state, *inputs)

    run = jax.custom_batching.custom_vmap(run_alone)

    @run.def_vmap
    def run_batch(axis_size, is_batched, *arguments):
        if not any(jax.tree.leaves(is_batched)):
            # Derivatives in many directions at once, of a state that is not batched.
            state = run_alone(*arguments)
            return state, jax.tree.map(lambda _: False, state)
        state, inputs = jax.tree.map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (axis_size, *x.shape)),
            arguments,
            tuple(is_batched),
        )
        state = rarely_for_all(jax.vmap(is_due), jax.vmap(function), state, *inputs)
        return state, jax.tree.map(lambda _: True, state)

    return run(state, inputs)


def after(never: jax.Array, tree: Any) -> Any:
    """The tree, computed after a boolean that is never true; zeros if it is.

    The boolean comes from the last readers of an array, the tree goes into its new value.
    ``optimization_barrier`` says the same, but on a CPU it is gone by the time XLA decides what to
    copy.
    """
    return jax.tree.map(lambda x: jnp.where(never, jnp.zeros_like(x), x), tree)
