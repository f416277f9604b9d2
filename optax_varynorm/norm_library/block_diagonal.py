"""A norm of its own for each block of coordinates."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _blocks, _precision
from optax_varynorm._empty import nothing, size_of
from optax_varynorm.norm_library.full_matrix import full_matrix_norm
from optax_varynorm.norms import InverseMatrix, Reading, VaryingNorm


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
        if not size_of(params):
            return nothing()
        stacks = blocks.stack(ravel_pytree(params)[0])
        return BlockDiagonalState(blocks, tuple(map(jax.vmap(norm.init), stacks)))

    def map_blocks(function):
        """The vectors that a function of a block's state and vector returns, as a tree."""

        def mapped(state, tree):
            if not size_of(tree):
                return tree
            flat, unravel = ravel_pytree(tree)
            stacks = map(jax.vmap(function), state.block_states, state.blocks.stack(flat))
            return unravel(state.blocks.unstack(tuple(stacks)))

        return mapped

    def measure(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        usable = _precision.is_usable(_precision.inner(flat, flat))
        flat = jnp.where(usable, flat, 0)
        if not flat.size:
            return Reading(gradient, gradient, jnp.zeros((), flat.dtype), usable, ())
        readings = tuple(map(jax.vmap(norm.measure), state.block_states, state.blocks.stack(flat)))
        squares = [jnp.sum(reading.squared_dual_norm) for reading in readings]
        known = state.blocks.unstack(tuple(reading.known for reading in readings))
        return Reading(
            unravel(flat),
            unravel(known),
            sum(squares, start=jnp.zeros((), flat.dtype)),
            usable,
            readings,
        )

    def grow(state, reading):
        if not reading.product:
            return state
        pairs = zip(state.block_states, reading.product, strict=True)
        return dataclasses.replace(
            state, block_states=tuple(jax.vmap(norm.grow)(*pair) for pair in pairs)
        )

    def announce(state, features):
        assert norm.announce is not None
        if not size_of(features):
            return state
        stacks = state.blocks.stack(ravel_pytree(features)[0])
        grown = map(jax.vmap(norm.announce), state.block_states, stacks)
        return dataclasses.replace(state, block_states=tuple(grown))

    def inverse(state):
        assert norm.inverse is not None
        inverse_of = norm.inverse
        if not isinstance(state, BlockDiagonalState):
            return jnp.zeros((0,))
        positions = state.blocks.positions()

        def of_block(block_state):
            """The inverse as an array, whichever form it has."""
            found = inverse_of(block_state)
            return found.block(None) if isinstance(found, InverseMatrix) else jnp.asarray(found)

        found = tuple(map(jax.vmap(of_block), state.block_states))
        if found[0].ndim < 3:
            pairs = zip(found, positions, strict=True)
            return state.blocks.unstack(
                tuple(
                    jnp.broadcast_to(values.reshape(len(where), -1), where.shape)
                    for values, where in pairs
                )
            )
        size = sum(state.blocks.sizes)
        matrix = jnp.zeros((size, size), found[0].dtype)
        for block, where in zip(found, positions, strict=True):
            matrix = matrix.at[where[:, :, None], where[:, None, :]].set(block)
        return InverseMatrix(
            jnp.diagonal(matrix),
            lambda indices: matrix if indices is None else matrix[indices][:, indices],
        )

    return norm._replace(
        init=init,
        measure=measure,
        grow=grow,
        to_dual=map_blocks(norm.to_dual),
        to_primal=map_blocks(norm.to_primal),
        inverse=norm.inverse and inverse,
        announce=norm.announce and announce,
    )
