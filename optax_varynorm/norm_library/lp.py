"""The fixed norm of ``eqn:constantnorm``."""

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.norms import Reading, VaryingNorm, select


def lp_norm(p=2.0, lipschitz=1.0) -> VaryingNorm:
    r"""``eqn:constantnorm``: :math:`\|x\|_t = L \|x\|_p` in every round, :math:`1 < p \le 2`.

    With ``lipschitz=None`` the longest gradient so far stands for ``L``.

    :math:`\tfrac12\|\cdot\|_p^2` is :math:`(p-1)`-strongly convex. With :math:`1/p + 1/q = 1`, a
    gradient has dual norm :math:`\|g\|_q / L`, at most one when :math:`\|g\|_q \le L`. Both
    duality maps are one function, since

    .. math:: \nabla \tfrac12 \|x\|_p^2 = \|x\|_p \, \mathrm{sign}(x) (|x| / \|x\|_p)^{p-1}.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.lp_norm(2.0)
    >>> state = norm.init(jnp.zeros(2))
    >>> float(vn.primal_norm(norm, state, jnp.array([3.0, 4.0])))
    5.0
    """
    _arguments.require(
        p,
        lambda number: (number > 1) & (number <= 2),
        f"`lp_norm` is strongly convex for 1 < p <= 2 only, but p is {p}. "
        "For gradients bounded in l_inf take p near 1, such as p = 1.1.",
    )
    if lipschitz is not None:
        _arguments.require_moderate("lipschitz", lipschitz, "the largest l_q norm of a gradient")
    euclidean = _arguments.is_known(p) and p == 2

    def norm_gradient(tree, power, factor):
        if euclidean:
            return optax.tree.scale(factor, tree)
        dtype = factor.dtype
        largest = jnp.stack(
            [jnp.zeros((), dtype), *(jnp.max(jnp.abs(x), initial=0) for x in jax.tree.leaves(tree))]
        ).max()
        scale = jnp.where(largest > 0, largest, 1)
        shrunk = jax.tree.map(lambda x: jnp.abs(x) / scale, tree)
        total = _precision.inner(
            jax.tree.map(lambda x: x**power, shrunk), jax.tree.map(jnp.ones_like, tree)
        )
        length = jnp.where(largest > 0, total, 1) ** (1 / power)
        return jax.tree.map(
            lambda x, small: (
                factor * scale * length * jnp.sign(x) * (small / length) ** (power - 1)
            ),
            tree,
            shrunk,
        )

    def init(params):
        return () if lipschitz is not None else jnp.zeros((), _precision.working_dtype(params))

    def squared_q_norm(gradient, dtype):
        if euclidean:
            return _precision.inner(gradient, gradient)
        power = jnp.asarray(p, dtype)
        dual = norm_gradient(gradient, power / (power - 1), jnp.ones((), dtype))
        return jnp.maximum(_precision.inner(gradient, dual), 0)

    def measure(state, gradient):
        dtype = _precision.working_dtype(gradient)
        square = _precision.inner(gradient, gradient)
        usable = _precision.is_usable(square)
        if not euclidean:
            square = squared_q_norm(select(usable, gradient), dtype)
        square = jnp.where(usable, square, 0)
        known = usable if lipschitz is not None else usable & (state > 0)
        dual = jnp.where(known, square / length(state, dtype) ** 2, 0)
        return Reading(
            gradient=select(usable, gradient),
            known=select(known, gradient),
            squared_dual_norm=dual,
            usable=usable,
            product=square,
        )

    def grow(state, reading):
        if lipschitz is not None:
            return state
        return jnp.maximum(state, _precision.root(reading.product))

    # Injected hyperparameters may come in the parameters' narrow dtype: widen, then compute.
    def length(state, dtype):
        if lipschitz is not None:
            return jnp.asarray(lipschitz, dtype)
        # Before the first gradient any norm will do: nothing is learned in it.
        return jnp.where(state > 0, state, 1)

    def to_dual(state, point):
        dtype = _precision.working_dtype(point)
        return norm_gradient(point, jnp.asarray(p, dtype), length(state, dtype) ** 2)

    def to_primal(state, gradient):
        dtype = _precision.working_dtype(gradient)
        power = jnp.asarray(p, dtype)
        return norm_gradient(gradient, power / (power - 1), 1 / length(state, dtype) ** 2)

    def inverse(state):
        return 1 / length(state, jnp.result_type(float)) ** 2

    return VaryingNorm(
        init,
        measure,
        grow,
        to_dual,
        to_primal,
        inverse=inverse if euclidean else None,
        strong_convexity=1.0 if euclidean else p - 1,
    )
