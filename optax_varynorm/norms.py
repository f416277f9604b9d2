"""What a varying norm is: two duality maps and a state that gradients make grow."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import get_opaque_trace_state
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision

NormState = Any


class Eigenbasis(NamedTuple):
    r"""The matrix :math:`A` of a quadratic norm :math:`\|x\|^2 = x^\top A x`, diagonalized.

    Attributes:
      values: eigenvalues of ``A``, one for each coordinate or one scalar for all.
      vectors: eigenvectors in columns, or ``None`` where they are the coordinate axes.
    """

    values: jax.Array
    vectors: jax.Array | None


class InverseMatrix(NamedTuple):
    r"""The inverse :math:`A^{-1}` of a quadratic norm's matrix, which need not be written down.

    Attributes:
      diagonal: its diagonal, flat.
      block: ``indices -> matrix``, its rows and columns at these flat coordinates; with ``None``
        all of it.
    """

    diagonal: jax.Array
    block: Callable[[jax.Array | None], jax.Array]


class VaryingNorm(NamedTuple):
    r"""An increasing sequence of norms :math:`\|\cdot\|_0 \le \|\cdot\|_1 \le \dots`.

    The sequence may depend on the gradients, one behind: :math:`\|\cdot\|_t` on
    :math:`g_1, \dots, g_t`. All functions take and return trees shaped like the parameters.

    Attributes:
      init: the state of :math:`\|\cdot\|_0` from the parameters.
      observe_gradient: the state of :math:`\|\cdot\|_t` from that of :math:`\|\cdot\|_{t-1}` and
        :math:`g_t`. A zero gradient leaves the norm as it is. A norm with a ``leader`` takes a
        third argument, the factor by which the gradient was shortened for the learner.
      to_dual: gradient of :math:`\tfrac12 \|x\|_t^2` (``A x`` for a quadratic norm).
      to_primal: gradient of :math:`\tfrac12 \|g\|_{t,\star}^2` (:math:`A^{-1} g`), its inverse.
      strong_convexity: the sigma for which :math:`\tfrac12\|\cdot\|_t^2` is sigma-strongly convex
        with respect to :math:`\|\cdot\|_t`.
      eigenbasis: the diagonalized matrix of a quadratic norm; ``None`` for every other norm.
      inverse_matrix: of a quadratic norm that can tell entries of its inverse more cheaply than by
        ``to_primal`` of unit vectors; others leave it out.
      leader: ``to_primal`` of the sum of the gradients so far, as shortened for the learner, flat.
        A norm that carries it from round to round saves its learner a pass over the matrix;
        others leave it out.
      known_part: the part of a gradient in coordinates where the norm is positive. A norm that
        starts at zero, because nobody told it how long gradients are, meets the rest for the first
        time, and its learner does not receive that rest; others leave it out.
      knows_all: whether a known part is everything, as a boolean, where that is cheap to tell.
      observe_features: the norm that knows one more feature vector of a linear model, from a state
        and the features; ``None`` for norms of gradients alone. The features of round ``t`` are
        announced before its point is played, so :math:`\|\cdot\|_t` may depend on
        :math:`f_1, \dots, f_{t+1}`. Zeros, and features that were announced before, change nothing.
      inverse_weights: :math:`A^{-1}` of a quadratic norm with a diagonal matrix, from a state and a
        dtype: one number, or a tree like the parameters, zero where nothing is known. Rounds of
        O(d) last as long as the arrays they read and write, and this tells how to read them once.
        Others leave it out.
      has_cheap_leader: whether ``to_primal`` costs so little, O(d), that a leader is found anew
        rather than kept.
      has_proof: whether ``strong_convexity`` is proved. Without it no regret bound is given out.
    """

    init: Callable[[optax.Params], NormState]
    observe_gradient: Callable[..., NormState]
    to_dual: Callable[[NormState, optax.Params], optax.Updates]
    to_primal: Callable[[NormState, optax.Updates], optax.Params]
    strong_convexity: Any = 1.0
    eigenbasis: Callable[[NormState], Eigenbasis] | None = None
    inverse_matrix: Callable[[NormState], InverseMatrix] | None = None
    leader: Callable[[NormState], jax.Array] | None = None
    known_part: Callable[[NormState, optax.Updates], optax.Updates] | None = None
    knows_all: Callable[[NormState], jax.Array] | None = None
    observe_features: Callable[[NormState, optax.Params], NormState] | None = None
    inverse_weights: Callable[[NormState, Any], Any] | None = None
    has_cheap_leader: bool = False
    has_proof: bool = True

    @property
    def is_quadratic(self) -> bool:
        return self.eigenbasis is not None


class Measured(NamedTuple):
    """A gradient that was measured.

    Attributes:
      gradient: the gradient.
      squared_dual_norm: in the norm before.
      product_with_leader: with the leader before, in the norm before; ``None`` if nobody knows it.
      trace: the trace in which this holds.
    """

    gradient: optax.Updates
    squared_dual_norm: jax.Array
    product_with_leader: jax.Array | None
    trace: Any


class Geometry(NamedTuple):
    r"""What round ``t`` knows of the norms.

    Attributes:
      norm: the sequence of norms.
      before: :math:`\|\cdot\|_{t-1}`, in which the point was played.
      after: :math:`\|\cdot\|_t`, which has seen the gradient.
      measured: the gradient that ``with_varying_norm`` handed inward, with what it knows of it.
    """

    norm: VaryingNorm
    before: NormState
    after: NormState
    measured: Measured | None = None

    def squared_dual_norm(self, gradient: optax.Updates) -> jax.Array:
        r""":math:`\|g\|_{t-1,\star}^2` of the gradient that a layer received."""
        measured = self._as_measured(gradient)
        if measured is not None:
            return measured.squared_dual_norm
        return dual_norm(self.norm, self.before, gradient) ** 2

    def product_with_leader(self, gradient: optax.Updates, gradient_sum: optax.Updates):
        """Of the gradient that a layer received and the leader before, in the norm before."""
        measured = self._as_measured(gradient)
        if measured is not None and measured.product_with_leader is not None:
            return measured.product_with_leader
        leader = self._leader_in(self.before, gradient, gradient_sum)
        return _precision.inner(gradient, leader)

    def leader(self, gradient: optax.Updates, gradient_sum: optax.Updates) -> optax.Params:
        """``to_primal`` in the norm after, of the sum of the gradients that a layer received."""
        return self._leader_in(self.after, gradient, gradient_sum)

    def _leader_in(self, state, gradient, gradient_sum):
        if self.norm.leader is not None and self._as_measured(gradient) is not None:
            return ravel_pytree(gradient)[1](self.norm.leader(state))
        return self.norm.to_primal(state, gradient_sum)

    def squared_length_of_leader(self, gradient_sum: optax.Updates, leader: optax.Params):
        r""":math:`\|\theta_t\|_{t,\star}^2`, which is the leader's squared length as well."""
        if self.norm.inverse_weights is not None:
            return _square_by_weights(self.norm, self.after, gradient_sum)
        return jnp.maximum(_precision.inner(gradient_sum, leader), 0)

    def _as_measured(self, gradient: optax.Updates) -> Measured | None:
        """What is known of the gradient if it is the very one that was handed inward, always.

        Decided while tracing, by identity: a layer that changes the gradient makes new arrays, and
        one that leaves out rounds (under ``cond``) traces anew.
        """
        if self.measured is None or self.measured.trace != get_opaque_trace_state():
            return None
        ours, theirs = jax.tree.leaves(self.measured.gradient), jax.tree.leaves(gradient)
        same = len(ours) == len(theirs) and all(map(operator.is_, ours, theirs))
        return self.measured if same else None


def sums_with_gradient(norm, state, gradient, gradient_sum) -> tuple[jax.Array, ...]:
    r"""Of a norm with ``inverse_weights``, of any arrays, finite or not, at one read of them.

    Returns:
      :math:`\langle g, g\rangle`, :math:`\|g\|_{t,\star}^2` and
      :math:`\langle g, A_t^{-1} \theta\rangle`. What is not known does not count.
    """
    weights = norm.inverse_weights(state, _precision.working_dtype(gradient))
    if _is_number(weights):
        square, product = _precision.sums(lambda g, s: (g * g, g * s), gradient, gradient_sum)
        return square, weights * square, weights * product
    return _precision.sums(
        lambda g, r, s: (g * g, g * r * g, g * r * s), gradient, weights, gradient_sum
    )


def _square_by_weights(norm, state, gradient) -> jax.Array:
    weights = norm.inverse_weights(state, _precision.working_dtype(gradient))
    if _is_number(weights):
        return weights * _precision.inner(gradient, gradient)
    (square,) = _precision.sums(lambda g, r: (g * r * g,), gradient, weights)
    return square


def _is_number(weights) -> bool:
    return isinstance(weights, jax.Array) and weights.ndim == 0


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
    if norm.inverse_weights is not None:
        return _precision.root(_square_by_weights(norm, state, gradient))
    return _precision.root(_precision.inner(gradient, norm.to_primal(state, gradient)))


def require_geometry(layer: str, geometry: Geometry | None) -> Geometry:
    if geometry is None:
        raise ValueError(
            f"`{layer}` needs to know the current norm. Wrap it: `with_varying_norm("
            "full_matrix_norm(), scale_by_coin_betting(ftrl_step()))`."
        )
    return geometry
