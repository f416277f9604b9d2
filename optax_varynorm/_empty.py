"""States of parameters that have no coordinates.

``optax.tree.map_params`` finds what in a state is like the parameters by the state of a tree
without leaves. Where the structure of a state depends on shapes, that state has one leaf in its
place, which stands for any structure.
"""

from typing import Any

import jax
import jax.numpy as jnp


def nothing() -> jax.Array:
    """What stands for a state of no coordinates."""
    return jnp.zeros((), bool)


def size_of(tree: Any) -> int:
    """The number of coordinates."""
    return sum(jnp.size(leaf) for leaf in jax.tree.leaves(tree))
