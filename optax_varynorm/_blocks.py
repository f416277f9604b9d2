"""A flat vector as a few stacks of equally long blocks."""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Blocks(NamedTuple):
    """The lengths of consecutive blocks of a flat vector.

    Blocks of one length form a stack, a matrix with one block a row, for ``vmap`` to work on: a
    program is as long as there are different lengths, however many blocks there are.
    """

    sizes: tuple[int, ...]

    @classmethod
    def of_leaves(cls, tree: Any, largest: int | None) -> "Blocks":
        """One a leaf, or ``ceil(n / largest)`` nearly equal ones of its ``n`` coordinates."""
        counts = [(n, 1 if largest is None else -(-n // largest)) for n in _leaf_sizes(tree) if n]
        return cls(tuple(n // k + (i < n % k) for n, k in counts for i in range(k)))

    @classmethod
    def of_sizes(cls, tree: Any, sizes: Sequence[int]) -> "Blocks":
        """So long, whatever the leaves are."""
        if sum(sizes) != sum(_leaf_sizes(tree)):
            raise ValueError(
                f"`block_sizes` add up to {sum(sizes)}, but there are {sum(_leaf_sizes(tree))} "
                "parameters. Give one size for each block, in the order of the leaves."
            )
        return cls(tuple(operator.index(size) for size in sizes if size))

    def stack(self, flat: jax.Array) -> tuple[jax.Array, ...]:
        """One matrix for each length, the shortest first."""
        order = self._order()
        flat = flat if order is None else flat[order]
        return tuple(
            flat[start : start + positions.size].reshape(positions.shape)
            for start, positions in zip(self._starts(), self.positions(), strict=True)
        )

    def unstack(self, stacks: tuple[jax.Array, ...]) -> jax.Array:
        """The flat vector of these stacks, at least one."""
        flat = jnp.concatenate([stack.ravel() for stack in stacks])
        order = self._order()
        return flat if order is None else flat[np.argsort(order)]

    def positions(self) -> list[np.ndarray]:
        """Where the entries of each stack are in the flat vector."""
        sizes = np.array(self.sizes, int)
        first = np.cumsum(sizes) - sizes
        return [first[sizes == size][:, None] + np.arange(size)[None] for size in np.unique(sizes)]

    def _starts(self) -> list[int]:
        return np.cumsum([0, *(positions.size for positions in self.positions())])[:-1].tolist()

    def _order(self) -> np.ndarray | None:
        """The permutation that sorts the blocks by length, ``None`` where they are sorted."""
        if list(self.sizes) == sorted(self.sizes):
            return None
        return np.concatenate([positions.ravel() for positions in self.positions()])


def require_sizes(sizes: Sequence[int] | None, largest: int | None) -> None:
    require_largest(largest)
    if sizes is None:
        return
    if largest is not None:
        raise ValueError("`block_sizes` says how long blocks are: leave `largest_block` out.")
    if min(map(operator.index, sizes), default=0) < 0:
        raise ValueError(f"`block_sizes` are numbers of coordinates, not {sizes!r}.")


def require_largest(largest: int | None) -> None:
    if largest is not None and operator.index(largest) < 1:
        raise ValueError(
            f"`largest_block` is a number of coordinates, at least one, not {largest!r}. "
            "`None` makes each leaf one block."
        )


def _leaf_sizes(tree: Any) -> list[int]:
    return [int(np.prod(jnp.shape(leaf))) for leaf in jax.tree.leaves(tree)]
