"""What a varying norm is: two duality maps and a state that gradients make grow."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

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


class VaryingNorm(NamedTuple):
    r"""An increasing sequence of norms :math:`\|\cdot\|_0 \le \|\cdot\|_1 \le \dots`.

    The sequence may depend on the gradients, one behind: :math:`\|\cdot\|_t` on
    :math:`g_1, \dots, g_t`. All functions take and return trees shaped like the parameters.

    Attributes:
      init: the state of :math:`\|\cdot\|_0` from the parameters.
      observe_gradient: the state of :math:`\|\cdot\|_t` from that of :math:`\|\cdot\|_{t-1}` and
        :math:`g_t`. A zero gradient leaves the norm as it is.
      to_dual: gradient of :math:`\tfrac12 \|x\|_t^2` (``A x`` for a quadratic norm).
      to_primal: gradient of :math:`\tfrac12 \|g\|_{t,\star}^2` (:math:`A^{-1} g`), its inverse.
      strong_convexity: the sigma for which :math:`\tfrac12\|\cdot\|_t^2` is sigma-strongly convex
        with respect to :math:`\|\cdot\|_t`.
      eigenbasis: the diagonalized matrix of a quadratic norm; ``None`` for every other norm.
    """

    init: Callable[[optax.Params], NormState]
    observe_gradient: Callable[[NormState, optax.Updates], NormState]
    to_dual: Callable[[NormState, optax.Params], optax.Updates]
    to_primal: Callable[[NormState, optax.Updates], optax.Params]
    strong_convexity: Any = 1.0
    eigenbasis: Callable[[NormState], Eigenbasis] | None = None

    @property
    def is_quadratic(self) -> bool:
        return self.eigenbasis is not None


class Geometry(NamedTuple):
    r"""What round ``t`` knows of the norms: :math:`\|\cdot\|_{t-1}` and :math:`\|\cdot\|_t`."""

    norm: VaryingNorm
    before: NormState
    after: NormState


def primal_norm(norm: VaryingNorm, state: NormState, point: optax.Params) -> jax.Array:
    r""":math:`\|x\|_t`, from :math:`\langle \nabla \tfrac12\|x\|^2, x\rangle = \|x\|^2`."""
    return jnp.sqrt(jnp.maximum(_precision.inner(norm.to_dual(state, point), point), 0))


def dual_norm(norm: VaryingNorm, state: NormState, gradient: optax.Updates) -> jax.Array:
    r""":math:`\|g\|_{t,\star}`, from :math:`\langle g, \nabla\tfrac12\|g\|_\star^2\rangle`."""
    return jnp.sqrt(jnp.maximum(_precision.inner(gradient, norm.to_primal(state, gradient)), 0))


def require_geometry(layer: str, geometry: Geometry | None) -> Geometry:
    if geometry is None:
        raise ValueError(
            f"`{layer}` needs to know the current norm. Wrap it: `with_varying_norm("
            "full_matrix_norm(), scale_by_coin_betting(ftrl_step()))`."
        )
    return geometry
