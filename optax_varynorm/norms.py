"""What a varying norm is: a measure, a way to grow, and two duality maps."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision

NormState = Any


class InverseMatrix(NamedTuple):
    r"""The inverse :math:`A^{-1}` of a quadratic norm's matrix, which need not be written down.

    Attributes:
      diagonal: its diagonal, flat.
      block: ``indices -> matrix``, its rows and columns at these flat coordinates; with ``None``
        all of it.
    """

    diagonal: jax.Array
    block: Callable[[jax.Array | None], jax.Array]


class Reading(NamedTuple):
    r"""What one look at a gradient found, in the norm before it.

    Attributes:
      gradient: the gradient; zeros if it is not usable.
      known: its part in coordinates where the norm is positive. A norm that starts at zero, because
        nobody told it how long gradients are, meets the rest for the first time.
      squared_dual_norm: :math:`\|\cdot\|_{t-1,\star}^2` of the known part.
      usable: whether the gradient is finite, and sums of squares of its like are.
      product: what the norm computed on the way and needs to grow; its own business.
      share: how much of the known part the learner receives, once that is decided.
    """

    gradient: optax.Updates
    known: optax.Updates
    squared_dual_norm: jax.Array
    usable: jax.Array
    product: Any = None
    share: Any = 1.0


class VaryingNorm(NamedTuple):
    r"""An increasing sequence of norms :math:`\|\cdot\|_0 \le \|\cdot\|_1 \le \dots`.

    The sequence may depend on the gradients, one behind: :math:`\|\cdot\|_t` on
    :math:`g_1, \dots, g_t`. All functions take and return trees shaped like the parameters.
    ``simple_norm`` makes one from the functions that every norm has.

    Attributes:
      init: the state of :math:`\|\cdot\|_0` from the parameters.
      measure: the one look at a gradient, ``(state, gradient) -> Reading``, in that state's norm.
        The gradient is as it came: not finite, perhaps.
      grow: the state of :math:`\|\cdot\|_t` from that of :math:`\|\cdot\|_{t-1}` and what was
        measured in it. A zero gradient leaves the norm as it is.
      to_dual: gradient of :math:`\tfrac12 \|x\|_t^2` (``A x`` for a quadratic norm).
      to_primal: gradient of :math:`\tfrac12 \|g\|_{t,\star}^2` (:math:`A^{-1} g`), its inverse.
      inverse: of a quadratic norm, from a state: :math:`A^{-1}` as a number, a flat diagonal, or an
        ``InverseMatrix``. ``None`` for every other norm.
      announce: the norm that knows one more feature vector of a linear model, from a state and the
        features; ``None`` for norms of gradients alone. The features of round ``t`` are announced
        before its point is played, so :math:`\|\cdot\|_t` may depend on
        :math:`f_1, \dots, f_{t+1}`. Zeros, and features announced before, change nothing.
      strong_convexity: the sigma for which :math:`\tfrac12\|\cdot\|_t^2` is sigma-strongly convex
        with respect to :math:`\|\cdot\|_t`; ``None`` if nobody has proven one. It is then played
        as one, and no regret bound is given out.
    """

    init: Callable[[optax.Params], NormState]
    measure: Callable[[NormState, optax.Updates], Reading]
    grow: Callable[[NormState, Reading], NormState]
    to_dual: Callable[[NormState, optax.Params], optax.Updates]
    to_primal: Callable[[NormState, optax.Updates], optax.Params]
    inverse: Callable[[NormState], jax.Array | InverseMatrix] | None = None
    announce: Callable[[NormState, optax.Params], NormState] | None = None
    strong_convexity: Any = 1.0

    @property
    def is_quadratic(self) -> bool:
        return self.inverse is not None

    def observe_gradient(self, state: NormState, gradient: optax.Updates) -> NormState:
        """The norm after a gradient: ``measure``, then ``grow``."""
        return self.grow(state, self.measure(state, gradient))


def simple_norm(
    init: Callable[[optax.Params], NormState],
    observe_gradient: Callable[[NormState, optax.Updates], NormState],
    to_dual: Callable[[NormState, optax.Params], optax.Updates],
    to_primal: Callable[[NormState, optax.Updates], optax.Params],
    **rest: Any,
) -> VaryingNorm:
    r"""A ``VaryingNorm`` that is positive from the start and measures gradients by ``to_primal``.

    .. math:: \|g\|_\star^2 = \langle g, \nabla\tfrac12\|g\|_\star^2\rangle

    Args:
      init: the state of :math:`\|\cdot\|_0` from the parameters.
      observe_gradient: the state of :math:`\|\cdot\|_t` from that of :math:`\|\cdot\|_{t-1}` and
        :math:`g_t`.
      to_dual: see ``VaryingNorm``.
      to_primal: see ``VaryingNorm``.
      rest: its other fields, by name.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> identity = lambda state, x: x
    >>> euclidean = vn.simple_norm(lambda params: (), lambda state, g: state, identity, identity)
    >>> float(vn.dual_norm(euclidean, (), jnp.array([3.0, 4.0])))
    5.0
    """

    def measure(state, gradient):
        gradient, usable = usable_gradient(gradient)
        square = jnp.maximum(_precision.inner(gradient, to_primal(state, gradient)), 0)
        return Reading(gradient, gradient, square, usable)

    def grow(state, reading):
        return observe_gradient(state, reading.gradient)

    return VaryingNorm(init, measure, grow, to_dual, to_primal, **rest)


def usable_gradient(gradient: optax.Updates) -> tuple[optax.Updates, jax.Array]:
    """The gradient, or zeros if sums of its like's squares are not finite; and which of the two."""
    usable = _precision.is_usable(_precision.inner(gradient, gradient))
    return select(usable, gradient), usable


def select(condition: jax.Array, tree: Any) -> Any:
    """The tree where the condition holds, zeros elsewhere."""
    return jax.tree.map(lambda leaf: jnp.where(condition, leaf, 0), tree)


def cut_to_one(squared_length: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What makes a vector of this squared length at most one long, and its squared length then."""
    # A length that overflows is no number, and too long as well: nothing of it is left.
    limit = (1 + _precision.rounding(squared_length.dtype)) ** 2
    fits, finite = squared_length <= limit, jnp.isfinite(squared_length)
    share = jnp.where(fits, 1, jax.lax.rsqrt(jnp.where(fits | ~finite, 1, squared_length)))
    share = jnp.where(finite, share, 0)
    return share, jnp.where(fits, squared_length, finite.astype(share.dtype))


class Geometry(NamedTuple):
    r"""What round ``t`` knows of the norms.

    Attributes:
      norm: the sequence of norms.
      before: :math:`\|\cdot\|_{t-1}`, in which the point was played.
      after: :math:`\|\cdot\|_t`, which has seen the gradient.
      received: the gradient that ``with_varying_norm`` handed inward.
      squared_dual_norm: what is known of it, in the norm before.
    """

    norm: VaryingNorm
    before: NormState
    after: NormState
    received: optax.Updates | None = None
    squared_dual_norm: jax.Array | None = None

    def sides(self) -> tuple[tuple, tuple]:
        """The norm and its state, before the gradient and after."""
        return (self.norm, self.before), (self.norm, self.after)

    def squared_dual_norm_of(self, gradient: optax.Updates) -> jax.Array:
        r""":math:`\|g\|_{t-1,\star}^2`.

        The gradient that was handed inward was measured, and for those very arrays the number is
        looked up. A layer that changes the gradient makes other arrays, which are measured here.
        """
        if self.squared_dual_norm is not None:
            ours, theirs = jax.tree.leaves(self.received), jax.tree.leaves(gradient)
            if len(ours) == len(theirs) and all(map(operator.is_, ours, theirs)):
                return self.squared_dual_norm
        return squared_dual_norm(self.norm, self.before, gradient)


def require_geometry(layer: str, geometry: Geometry | None) -> Geometry:
    if geometry is None:
        raise ValueError(
            f"`{layer}` needs to know the current norm. Wrap it: `with_varying_norm("
            "full_matrix_norm(), scale_by_coin_betting(ftrl_step()))`."
        )
    return geometry


def primal_norm(norm: VaryingNorm, state: NormState, point: optax.Params) -> jax.Array:
    r""":math:`\|x\|_t`, from :math:`\langle \nabla \tfrac12\|x\|^2, x\rangle = \|x\|^2`.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.full_matrix_norm()
    >>> round(float(primal_norm(norm, norm.init(jnp.zeros(2)), jnp.array([3.0, 4.0]))), 3)
    7.071
    """
    return _precision.root(_precision.inner(norm.to_dual(state, point), point))


def dual_norm(norm: VaryingNorm, state: NormState, gradient: optax.Updates) -> jax.Array:
    r""":math:`\|g\|_{t,\star}`, from :math:`\langle g, \nabla\tfrac12\|g\|_\star^2\rangle`.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.full_matrix_norm()
    >>> round(float(dual_norm(norm, norm.init(jnp.zeros(2)), jnp.array([3.0, 4.0]))), 3)
    3.536
    """
    return _precision.root(squared_dual_norm(norm, state, gradient))


def squared_dual_norm(norm: VaryingNorm, state: NormState, gradient: optax.Updates) -> jax.Array:
    r""":math:`\|g\|_{t,\star}^2`, which is not negative where rounding says so."""
    square = _precision.inner(gradient, norm.to_primal(state, gradient))
    return jnp.where(square < 0, 0, square)
