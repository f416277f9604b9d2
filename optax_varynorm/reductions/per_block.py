"""One learner for each block of coordinates."""

import optax

from optax_varynorm._blocks import Blocks, require_largest
from optax_varynorm.norm_library.first_seen import SMALLEST_COORDINATE
from optax_varynorm.reductions.per_part import Parts, per_part, require_part


def per_block(
    learner: optax.GradientTransformation,
    largest_block: int | None = None,
    smallest_first=SMALLEST_COORDINATE,
) -> optax.GradientTransformationExtraArgs:
    r"""Run a copy of a learner on every leaf, or on parts of it, equal ones at once by ``vmap``.

    Losses are linear, so the regrets of the blocks add up:

    .. math::
       \sum_t \langle g_t, w_t - u\rangle
       = \sum_b \sum_t \langle g_{t,b}, w_{t,b} - u_b\rangle.

    Against the starting point each block may lose ``epsilon`` of its own. Extra arguments that
    are shaped like the parameters, such as ``features``, are shared out by block; others go to
    every copy. ``block_diagonal_norm`` has the same blocks under one bettor.

    Args:
      learner: a learner of flat vectors, such as ``vn.full_matrix()``.
      largest_block: a leaf with more coordinates than this is cut into nearly equal parts; each
        leaf is one block if ``None``.
      smallest_first: a block's first gradient is enlarged to this part of the largest entry of any
        gradient so far, so that none takes rounding for its unit; 0 for learners with units of
        their own.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.per_block(vn.full_matrix(), largest_block=64)
    >>> state = optimizer.init({"kernel": jnp.zeros((16, 8)), "bias": jnp.zeros(8)})
    """
    require_largest(largest_block)
    require_part(smallest_first)

    def parts_of(tree):
        blocks = Blocks.of_leaves(tree, largest_block)
        return Parts(blocks.stack, blocks.unstack)

    return per_part("per_block", learner, parts_of, smallest_first)
