"""A norm of its own for each block of coordinates."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _blocks
from optax_varynorm.norm_library.full_matrix import full_matrix_norm
from optax_varynorm.norms import Eigenbasis, VaryingNorm


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["block_states"], meta_fields=["blocks"]
)
@dataclasses.dataclass(frozen=True)
class BlockDiagonalState:
    """Attributes:
    blocks: the lengths of the blocks, no arrays but part of the structure.
    block_states: for each length, the states of the blocks' norms with one more axis.
    """

    blocks: _blocks.Blocks
    block_states: tuple[Any, ...]


def block_diagonal_norm(
    norm: VaryingNorm | None = None,
    largest_block: int | None = None,
    block_sizes: Sequence[int] | None = None,
) -> VaryingNorm:
    r"""``thm:addnorm`` over blocks :math:`x_b`: :math:`\|x\|_t^2 = \sum_b \|x_b\|_{b,t}^2`.

    With ``full_matrix_norm`` in each block, a block-diagonal matrix: a round costs the sum of the
    squared block sizes instead of the square of their sum. Blocks of one size are one batch, so a
    program does not grow with their number. Dual norms add up like the norms, and half the square
    is as strongly convex as in a block.

    With ``full_matrix_norm(lipschitz=None)`` each block learns its own units, so that layers whose
    gradients differ in size do not disturb each other. In exchange, the first gradients may be
    longer than a learner can see, by up to the root of the number of blocks; they are clipped and
    counted. ``per_block`` has a bettor for each block, and nothing of this kind to clip.

    Projections know it by its whole matrix, O(d^3).

    Args:
      norm: the norm of a block, which it receives as a flat vector; ``full_matrix_norm()`` if
        ``None``.
      largest_block: a leaf with more coordinates than this is cut into nearly equal parts; each
        leaf is one block if ``None``.
      block_sizes: the lengths of all blocks instead, in the order of the leaves. Models of many
        small leaves learn faster as one vector, ``optax.flatten(optimizer)``, which has no leaves
        to tell the blocks: ``[leaf.size for leaf in jax.tree.leaves(params)]`` are theirs.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.block_diagonal_norm(largest_block=64)
    >>> state = norm.init({"kernel": jnp.zeros((16, 8)), "bias": jnp.zeros(8)})
    >>> state.blocks.sizes
    (8, 64, 64)
    """
    block_sizes = None if block_sizes is None else tuple(block_sizes)
    _blocks.require_sizes(block_sizes, largest_block)
    norm = full_matrix_norm() if norm is None else norm

    def init(params):
        if block_sizes is None:
            blocks = _blocks.Blocks.of_leaves(params, largest_block)
        else:
            blocks = _blocks.Blocks.of_sizes(params, block_sizes)
        stacks = blocks.stack(ravel_pytree(params)[0])
        return BlockDiagonalState(blocks, tuple(map(jax.vmap(norm.init), stacks)))

    def map_blocks(function):
        """The vectors that a function of a block's state and vector returns, as a tree."""

        def mapped(state, tree):
            if not state.block_states:
                return tree
            flat, unravel = ravel_pytree(tree)
            stacks = map(jax.vmap(function), state.block_states, state.blocks.stack(flat))
            return unravel(state.blocks.unstack(tuple(stacks)))

        return mapped

    def observe(function):
        """The state after each block's has seen its part of a tree."""

        def observed(state, tree, *share):
            grown = jax.vmap(function, in_axes=(0, 0, *(None for _ in share)))
            stacks = zip(state.block_states, state.blocks.stack(ravel_pytree(tree)[0]), strict=True)
            return dataclasses.replace(
                state, block_states=tuple(grown(old, stack, *share) for old, stack in stacks)
            )

        return observed

    def leader(state):
        assert norm.leader is not None
        if not state.block_states:
            return jnp.zeros((0,))
        return state.blocks.unstack(tuple(map(jax.vmap(norm.leader), state.block_states)))

    def knows_all(state) -> jax.Array:
        assert norm.knows_all is not None
        answers = map(jax.vmap(norm.knows_all), state.block_states)
        return jnp.all(jnp.stack([jnp.ones((), bool), *map(jnp.all, answers)]))

    def eigenbasis(state) -> Eigenbasis:
        assert norm.eigenbasis is not None
        bases = tuple(map(jax.vmap(norm.eigenbasis), state.block_states))
        positions = state.blocks.positions()
        values = tuple(
            jnp.broadcast_to(basis.values.reshape(len(where), -1), where.shape)
            for basis, where in zip(bases, positions, strict=True)
        )
        if not bases or bases[0].vectors is None:
            return Eigenbasis(state.blocks.unstack(values) if bases else jnp.zeros((0,)), None)
        size = sum(state.blocks.sizes)
        vectors = jnp.zeros((size, size), values[0].dtype)
        for basis, where in zip(bases, positions, strict=True):
            vectors = vectors.at[where[:, :, None], where[:, None, :]].set(basis.vectors)
        return Eigenbasis(state.blocks.unstack(values), vectors)

    return norm._replace(
        init=init,
        observe_gradient=observe(norm.observe_gradient),
        to_dual=map_blocks(norm.to_dual),
        to_primal=map_blocks(norm.to_primal),
        eigenbasis=norm.eigenbasis and eigenbasis,
        inverse_matrix=None,
        leader=norm.leader and leader,
        known_part=norm.known_part and map_blocks(norm.known_part),
        knows_all=norm.knows_all and knows_all,
        inverse_weights=None,
        observe_features=norm.observe_features and observe(norm.observe_features),
    )
