"""One learner for each block of coordinates."""

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm._blocks import Blocks, require_largest
from optax_varynorm._empty import nothing, size_of
from optax_varynorm.learners import Certified, slack_of


def per_block(
    learner: optax.GradientTransformation, largest_block: int | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""Run a copy of a learner on every leaf, or on parts of it, equal ones at once by ``vmap``.

    Losses are linear, so the regrets of the blocks add up:

    .. math::
       \sum_t \langle g_t, w_t - u\rangle
       = \sum_b \sum_t \langle g_{t,b}, w_{t,b} - u_b\rangle.

    Against the starting point each block may lose ``epsilon`` of its own. The state is one for each
    length of a block, with one more axis, as long as there are such blocks. Extra arguments that
    are shaped like the parameters, such as ``features``, are shared out by block; others go to
    every copy. ``block_diagonal_norm`` has the same blocks under one bettor.

    Args:
      learner: a learner of flat vectors, such as ``vn.full_matrix()``.
      largest_block: a leaf with more coordinates than this is cut into nearly equal parts; each
        leaf is one block if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.per_block(vn.full_matrix(), largest_block=64)
    >>> state = optimizer.init({"kernel": jnp.zeros((16, 8)), "bias": jnp.zeros(8)})
    """
    require_largest(largest_block)
    learner_slack = slack_of(learner)
    learner = optax.with_extra_args_support(learner)

    def stack(tree):
        return Blocks.of_leaves(tree, largest_block).stack(ravel_pytree(tree)[0])

    def init(params):
        if not size_of(params):
            return nothing()
        return tuple(map(jax.vmap(learner.init), stack(params)))

    def update(updates, state, params, *, geometry=None, **extra_args):
        del geometry  # one of the whole space, which means nothing to one block
        flat, unravel = ravel_pytree(params)
        if not flat.size:
            return updates, state
        shapes = jax.tree.map(jnp.shape, params)
        shared = {
            name: _precision.cast(value, flat.dtype)
            for name, value in extra_args.items()
            if jax.tree.map(jnp.shape, value) == shapes
        }
        whole = {name: value for name, value in extra_args.items() if name not in shared}

        def update_block(gradient, state, param, shared):
            return learner.update(gradient, state, param, **shared, **whole)

        shared_stacks = {name: stack(value) for name, value in shared.items()}
        rows = [
            {name: stacks[i] for name, stacks in shared_stacks.items()} for i in range(len(state))
        ]
        stacked = map(jax.vmap(update_block), stack(updates), state, stack(params), rows)
        steps, states = zip(*stacked, strict=True)
        return unravel(Blocks.of_leaves(params, largest_block).unstack(steps)), states

    def slack(state, comparator, *_):
        slacks = map(jax.vmap(learner_slack), state, stack(comparator))
        return sum(map(jnp.sum, slacks), start=jnp.zeros((), _precision.working_dtype(comparator)))

    return Certified(_precision.in_working_precision("per_block", init, update), slack)
