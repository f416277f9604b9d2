"""A tree of many short leaves is worked on as one vector.

A hundred small operations take longer than one of a hundred times as much, and longer to compile.
XLA removes the cutting of a vector into leaves where they are joined again.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Longer leaves are worked on one by one: joining them would be one more pass over them.
LONGEST = 2**14


def are_all_short(tree: Any) -> bool:
    """Whether no leaf is long."""
    return all(jnp.size(leaf) <= LONGEST for leaf in jax.tree.leaves(tree))


def are_short(tree: Any) -> bool:
    """Whether there are several leaves, and none is long."""
    return len(jax.tree.leaves(tree)) > 1 and are_all_short(tree)


def join(tree: Any) -> jax.Array:
    """All numbers in tree order."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def map_elementwise(function: Callable[[jax.Array], jax.Array], tree: Any) -> Any:
    """``jax.tree.map`` of a function that treats every number alike."""
    if not are_short(tree):
        return jax.tree.map(function, tree)
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([*map(jnp.size, leaves)])[:-1]
    parts = jnp.split(function(join(tree)), ends)
    return jax.tree.unflatten(
        structure, [part.reshape(jnp.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    )
