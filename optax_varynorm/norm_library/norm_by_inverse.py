"""A quadratic norm that knows its matrix by the inverse only."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm.norms import Eigenbasis, VaryingNorm


def norm_by_inverse(
    init: Callable, grow: Callable, times: Callable, dense: Callable, leader: Callable
) -> VaryingNorm:
    """The norm :math:`x^T A x` whose learner needs :math:`P = A^{-1}` alone.

    ``to_dual`` and ``eigenbasis`` cost O(d^3); neither an unconstrained learner nor a half-space
    needs them.

    Args:
      init: ``(dimension, dtype) -> state``.
      grow: ``(state, flat gradient, share) -> state``, as ``GrowingInverse.grow``.
      times: ``(state, flat vector) -> P vector``.
      dense: ``state -> P``.
      leader: ``state -> P theta``.
    """

    def init_state(params):
        flat, _ = ravel_pytree(params)
        return init(flat.size, flat.dtype)

    def observe_gradient(state, gradient, share=1.0):
        flat, _ = ravel_pytree(gradient)
        return grow(state, flat, jnp.asarray(share, flat.dtype))

    def to_dual(state, point):
        flat, unravel = ravel_pytree(point)
        return unravel(jnp.linalg.solve(dense(state), flat) if flat.size else flat)

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(times(state, flat))

    return VaryingNorm(
        init=init_state,
        observe_gradient=observe_gradient,
        to_dual=to_dual,
        to_primal=to_primal,
        eigenbasis=lambda state: _eigenbasis_from_inverse(dense(state)),
        leader=leader,
    )


def _eigenbasis_from_inverse(inverse: jax.Array) -> Eigenbasis:
    """Eigenvalues that rounding made unknowable become large."""
    values, vectors = jnp.linalg.eigh(inverse)
    known = jnp.finfo(values.dtype).eps * jnp.max(values, initial=0)
    return Eigenbasis(1 / jnp.maximum(values, known), vectors)
