"""The AdaGrad-style full-matrix norm of ``thm:adagrad``."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm._in_place import rarely
from optax_varynorm.norm_library import growing_inverse
from optax_varynorm.norm_library.norm_by_inverse import Growing, in_known_units, in_learned_unit
from optax_varynorm.norms import InverseMatrix, VaryingNorm, simple_norm


class Accuracy(NamedTuple):
    """Attributes:
    nodes: of the quadrature, each a matrix.
    largest_eigenvalue: of ``I + G / L^2``, up to which it is accurate. Gradients no longer than
      ``L`` reach it after so many rounds in one direction.
    """

    nodes: int
    largest_eigenvalue: float


# Relative errors of 1.0e-6 and 1.1e-11, below what rounding does anyway.
ACCURACY = {
    jnp.dtype(jnp.float32): Accuracy(nodes=11, largest_eigenvalue=1e5),
    jnp.dtype(jnp.float64): Accuracy(nodes=24, largest_eigenvalue=1e6),
}


def full_matrix_root_norm(lipschitz=1.0, exact_every: int | None = None) -> VaryingNorm:
    r"""``thm:adagrad``: :math:`\|x\|_t^2 = L\, x^\top (L^2 I + G_t)^{1/2} x`.

    :math:`G_t = \sum_{i\le t} g_i g_i^\top`. The inverse square root is a rational quadrature,

    .. math:: \tfrac1L (L^2 I + G)^{-1/2} \approx \sum_k c_k (G + s_k I)^{-1}, \qquad c_k, s_k > 0,

    with one ``GrowingInverse`` a node: O(N d^2) a round, no eigendecomposition. Each term decreases
    as ``G`` grows and at ``G = 0`` the sum is at most :math:`1/L^2`, so the norm that the
    quadrature *defines* is itself increasing, quadratic, and gives no gradient with
    :math:`\|g\|_2 \le L` a dual norm above one. ``thm:varynorm`` holds for it as it stands, at any
    number of nodes; only the bound in terms of the exact root (``thm:adagraddetail``) is off by the
    quadrature's error. ``to_dual`` costs O(d^3).

    Args:
      lipschitz: ``L``, the largest l_2 norm of a gradient, or ``None`` if nobody knows it. Then
        :math:`\|x\|_t^2 = h\, x^\top (m^2 I + G)^{1/2} x`, where ``h`` is the length of the longest
        gradient and ``m`` of the last one that outweighed all before it; ``G`` counts from there.
      exact_every: take the exact root instead, by one ``eigh`` every so many rounds; the norm
        stands still in between, which an increasing sequence may do.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.full_matrix_root_norm(lipschitz=1.0)
    >>> state = norm.observe_gradient(norm.init(jnp.zeros(2)), jnp.array([1.0, 0.0]))
    >>> [round(x, 3) for x in norm.to_dual(state, jnp.ones(2)).tolist()]
    [1.414, 1.0]
    """
    if lipschitz is None:
        if exact_every is not None:
            raise ValueError("`exact_every` needs a known `lipschitz`. Give one, or leave it out.")
        return in_learned_unit(_inverse_root(1.0), factor=1.0, follow_largest=True)
    _arguments.require_moderate("lipschitz", lipschitz, "the largest l_2 norm of a gradient")
    if exact_every is not None:
        return _exact_root_norm(lipschitz, exact_every)
    return in_known_units(_inverse_root(lipschitz))


def _inverse_root(lipschitz) -> Growing:
    def weighted(terms):
        # By their number: a state of float32 may be read in float64.
        (accuracy,) = (each for each in ACCURACY.values() if each.nodes == len(terms))
        _, weights = _inverse_root_quadrature(*accuracy)
        return jnp.tensordot(jnp.asarray(weights, terms.dtype), terms, axes=1)

    def start_values(dtype):
        shifts, _ = _inverse_root_quadrature(*ACCURACY[jnp.dtype(dtype)])
        return jnp.asarray(1 + shifts, dtype) * jnp.asarray(lipschitz, dtype) ** 2

    def start(received_sum):
        values = 1 / start_values(received_sum.dtype)
        return jax.vmap(growing_inverse.scaled_identity, in_axes=(0, None))(values, received_sum)

    return Growing(
        start,
        _grow_each,
        _times_each,
        total=weighted,
        dense=lambda inverse: weighted(jax.vmap(growing_inverse.dense)(inverse)),
        block=lambda inverse, indices: weighted(
            jax.vmap(growing_inverse.block, in_axes=(0, None))(inverse, indices)
        ),
        diagonal=lambda inverse: weighted(inverse.diagonal),
        leader=lambda inverse: weighted(inverse.leader),
        growth=lambda squares: 1 / weighted(1 / (squares + start_values(squares.dtype))),
    )


_grow_each = jax.vmap(growing_inverse.grow, in_axes=(0, None, 0, None, None))
_times_each = jax.vmap(growing_inverse.times, in_axes=(0, None))


def _inverse_root_quadrature(
    nodes: int, largest_eigenvalue: float
) -> tuple[np.ndarray, np.ndarray]:
    r"""Shifts and weights with :math:`\lambda^{-1/2} \approx \sum_k w_k / (\lambda + s_k)`.

    :math:`\lambda^{-1/2} = \tfrac2\pi\int_0^\infty dt / (\lambda + t^2)`, and the substitution
    :math:`t = \mathrm{sn}(v)/\mathrm{cn}(v)` makes the midpoint rule converge geometrically on
    ``[1, largest_eigenvalue]``: Hale, Higham and Trefethen, *Computing A^alpha, log(A), and related
    matrix functions by contour integrals*, 2008, method 3. It is least accurate, and too small, at
    both ends, so its value at 1 is at most 1.
    """
    from scipy import special  # slow to import, and needed by this norm alone

    period = special.ellipkm1(1 / largest_eigenvalue)
    sn, cn, dn, _ = special.ellipj(
        (np.arange(nodes) + 0.5) * period / nodes, 1 - 1 / largest_eigenvalue
    )
    return (sn / cn) ** 2, 2 * period / (np.pi * nodes) * dn / cn**2


class ExactRootState(NamedTuple):
    """Attributes:
    gradient_covariance: ``G_t``, the sum of the gradients' outer products.
    root_eigenvalues: eigenvalues of ``L (L^2 I + G)^{1/2}`` at the last refresh.
    root_eigenvectors: its eigenvectors, in columns.
    rounds_since_root: number of gradients since the last refresh.
    """

    gradient_covariance: jax.Array
    root_eigenvalues: jax.Array
    root_eigenvectors: jax.Array
    rounds_since_root: jax.Array


def _exact_root_norm(lipschitz, exact_every: int) -> VaryingNorm:
    if exact_every < 1:
        raise ValueError(f"`exact_every` counts rounds and must be at least 1, not {exact_every}.")

    def init(params):
        flat, _ = ravel_pytree(params)
        dtype = _precision.working_dtype(params)
        return ExactRootState(
            gradient_covariance=jnp.zeros((flat.size, flat.size), dtype),
            root_eigenvalues=jnp.full((flat.size,), jnp.asarray(lipschitz, dtype) ** 2),
            root_eigenvectors=jnp.eye(flat.size, dtype=dtype),
            rounds_since_root=jnp.zeros((), jnp.int32),
        )

    def refresh(state):
        if not state.root_eigenvalues.size:
            return state._replace(rounds_since_root=jnp.zeros((), jnp.int32))
        values, vectors = jnp.linalg.eigh(state.gradient_covariance)
        length = jnp.asarray(lipschitz, values.dtype)
        # G is positive semi-definite; rounding in eigh may say otherwise by a little.
        root = length * jnp.sqrt(length**2 + jnp.maximum(values, 0))
        return ExactRootState(state.gradient_covariance, root, vectors, jnp.zeros((), jnp.int32))

    def observe_gradient(state, gradient):
        flat, _ = ravel_pytree(gradient)
        state = state._replace(
            gradient_covariance=state.gradient_covariance + jnp.outer(flat, flat),
            rounds_since_root=state.rounds_since_root + 1,
        )
        return rarely(state.rounds_since_root == exact_every, refresh, state)

    def to_dual(state, point):
        flat, unravel = ravel_pytree(point)
        return unravel(_in_basis(state, flat, state.root_eigenvalues))

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(_in_basis(state, flat, 1 / state.root_eigenvalues))

    def inverse(state):
        vectors, inverses = state.root_eigenvectors, 1 / state.root_eigenvalues

        def block(indices):
            rows = vectors if indices is None else vectors[indices]
            return (rows * inverses[None, :]) @ rows.T

        return InverseMatrix(vectors**2 @ inverses, block)

    return simple_norm(init, observe_gradient, to_dual, to_primal, inverse=inverse)


def _in_basis(state, flat, factors):
    return state.root_eigenvectors @ (factors * (flat @ state.root_eigenvectors))
