"""A norm of groups of coordinates: Euclidean inside, l_p across."""

import jax
import jax.numpy as jnp

from optax_varynorm import _precision
from optax_varynorm.norm_library.lp import lp_norm
from optax_varynorm.norms import VaryingNorm, select


def group_norm(p=1.5, lipschitz=1.0, groups: str = "leaves") -> VaryingNorm:
    r"""``eqn:constantnorm`` of groups: :math:`\|x\|_t = L \big(\sum_j \|x_j\|_2^p\big)^{1/p}`.

    For gradients that are large in few groups at a time: with ``p`` near one, ``L`` bounds little
    more than the longest group of a gradient. Half the square is :math:`(p-1)`-strongly convex, as
    that of the l_p norm (Juditsky and Nemirovski 2008). The duality maps are those of the l_p norm
    on the lengths of the groups, each of which keeps its direction.

    Args:
      p: which norm across groups, in (1, 2].
      lipschitz: the largest dual norm of a gradient, :math:`(\sum_j \|g_j\|_2^q)^{1/q}` with
        ``1/p + 1/q = 1``; with ``None`` the largest so far stands for it.
      groups: ``"leaves"``, or ``"rows"``: the vectors along each leaf's last axis.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.group_norm(1.5)
    >>> point = {"kernel": jnp.array([3.0, 4.0]), "bias": jnp.zeros(2)}
    >>> round(float(vn.primal_norm(norm, norm.init(point), point)), 3)
    5.0
    """
    if groups not in ("leaves", "rows"):
        raise ValueError(f"`groups` must be 'leaves' or 'rows', not {groups!r}.")
    across = lp_norm(p, lipschitz)

    def lengths(tree):
        """Of the groups, with as many axes as their leaves, so that they divide them."""

        def of_leaf(leaf):
            axes = None if groups == "leaves" else (-1,)
            axes = None if leaf.ndim == 0 else axes
            # In units of the largest entry, whose square could be out of range.
            largest = jnp.max(jnp.abs(leaf), axis=axes, keepdims=True, initial=0)
            shares = _precision.ratio(leaf, jnp.broadcast_to(largest, leaf.shape))
            return largest * _precision.root(jnp.sum(shares**2, axis=axes, keepdims=True))

        return jax.tree.map(of_leaf, tree)

    def with_lengths(tree, old, new):
        def of_leaf(leaf, old, new):
            return leaf * jnp.broadcast_to(_precision.ratio(new, old), leaf.shape)

        return jax.tree.map(of_leaf, tree, old, new)

    def measure(state, gradient):
        old = lengths(gradient)
        reading = across.measure(state, old)
        gradient = select(reading.usable, gradient)
        known = gradient if lipschitz is not None else select(state > 0, gradient)
        return reading._replace(gradient=gradient, known=known)

    def to_dual(state, point):
        old = lengths(point)
        return with_lengths(point, old, across.to_dual(state, old))

    def to_primal(state, gradient):
        old = lengths(gradient)
        return with_lengths(gradient, old, across.to_primal(state, old))

    return across._replace(measure=measure, to_dual=to_dual, to_primal=to_primal, inverse=None)
