"""A running sum with twice the digits of its dtype."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax


class CompensatedSum(NamedTuple):
    """Attributes:
    total: the sum, a tree.
    lost: what rounding took from it.
    """

    total: optax.Params
    lost: optax.Params

    @classmethod
    def zeros_like(cls, tree):
        return cls(optax.tree.zeros_like(tree), optax.tree.zeros_like(tree))

    def plus(self, tree) -> "CompensatedSum":
        """Kahan's sum, with Knuth's exact error of an addition, leaf by leaf."""
        added = jax.tree.map(jnp.add, tree, self.lost)
        total = jax.tree.map(jnp.add, self.total, added)

        def error(before, added, after):
            kept = after - before
            return (before - (after - kept)) + (added - kept)

        return CompensatedSum(total, jax.tree.map(error, self.total, added, total))

    def value(self):
        return jax.tree.map(jnp.add, self.total, self.lost)
