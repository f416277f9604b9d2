"""Domains bounded by hyperplanes that project in closed form: half-space, hyperplane, affine."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains.domain import (
    Domain,
    Projection,
    require_like,
    require_quadratic,
    select,
    support_of_unbounded,
)


def half_space(normal, offset) -> Domain:
    r"""The points with :math:`\langle a, w\rangle \le b`; ``a`` is a tree like the parameters.

    In every norm the nearest point lies along ``to_primal(a)``, the direction in which
    :math:`\langle a, \cdot\rangle` grows fastest:

    .. math::
       w = v - \lambda\,\mathrm{to\_primal}(a), \qquad
       \lambda = \frac{\max(0, \langle a, v\rangle - b)}{\|a\|_\star^2}, \qquad
       \mathrm{to\_dual}(v - w) = \lambda a.
    """
    return _one_constraint(
        "half_space", normal, offset, lambda violation: jnp.maximum(violation, 0)
    )


def hyperplane(normal, offset) -> Domain:
    r"""The points with :math:`\langle a, w\rangle = b`; as ``half_space``, from both sides."""
    return _one_constraint("hyperplane", normal, offset, lambda violation: violation)


def _one_constraint(name, normal, offset, count) -> Domain:
    for leaf in jax.tree.leaves(normal):
        _arguments.require(leaf, np.isfinite, f"The normal of `{name}` must be finite.")
    _arguments.require(offset, np.isfinite, f"The offset of `{name}` must be finite, not {offset}.")
    if all(_arguments.is_known(a) and not np.any(a) for a in jax.tree.leaves(normal)):
        raise ValueError(f"The normal of `{name}` is zero, so it bounds nothing. Give a direction.")

    def in_dtype_of(point):
        require_like(f"The normal of `{name}`", normal, point)
        dtype = _precision.working_dtype(point)
        return _precision.cast(normal, dtype), jnp.asarray(offset, dtype)

    def project(norm, norm_state, point):
        a, b = in_dtype_of(point)
        fastest = norm.to_primal(norm_state, a)
        multiplier = count(_precision.inner(a, point) - b) / _precision.inner(a, fastest)
        residual = optax.tree.scale(multiplier, fastest)
        moved = select(multiplier == 0, point, optax.tree.sub(point, residual))
        return Projection(moved, residual, optax.tree.scale(multiplier, a))

    def contains(point):
        a, b = in_dtype_of(point)
        sizes = jax.tree.map(lambda x: 1 + jnp.abs(x), point)
        size = jnp.abs(b) + _precision.inner(jax.tree.map(jnp.abs, a), sizes)
        violation = jnp.abs(count(_precision.inner(a, point) - b))
        return violation <= _precision.rounding(b.dtype) * size

    return Domain(project, contains, support_of_unbounded)


def affine(matrix, offset) -> Domain:
    r"""The points with :math:`M w = b`, for quadratic norms.

    ``matrix`` has one row a constraint and one column for each coordinate of the parameters in
    tree order (``jax.flatten_util.ravel_pytree``). The KKT conditions of the projection are

    .. math::
       M A^{-1} M^\top \lambda = M v - b, \qquad w = v - A^{-1} M^\top \lambda, \qquad
       A (v - w) = M^\top \lambda.
    """
    if np.ndim(matrix) != 2 or np.shape(offset) != np.shape(matrix)[:1]:
        raise ValueError(
            "`affine` needs a matrix of shape (constraints, coordinates) and an offset of shape "
            f"(constraints,), but they have shapes {np.shape(matrix)} and {np.shape(offset)}."
        )
    _arguments.require(matrix, np.isfinite, "The matrix of `affine` must be finite.")
    _arguments.require(offset, np.isfinite, "The offset of `affine` must be finite.")
    if _arguments.is_known(matrix) and np.linalg.matrix_rank(matrix) < np.shape(matrix)[0]:
        raise ValueError(
            "The rows of `affine`'s matrix are linearly dependent, so its constraints repeat or "
            "contradict each other. Remove the redundant rows."
        )

    def in_dtype_of(point):
        flat, unravel = ravel_pytree(point)
        if flat.size != np.shape(matrix)[1]:
            raise ValueError(
                f"`affine` has a matrix with {np.shape(matrix)[1]} columns, but the parameters "
                f"have {flat.size} coordinates in all. They must agree."
            )
        return flat, unravel, jnp.asarray(matrix, flat.dtype), jnp.asarray(offset, flat.dtype)

    def project(norm, norm_state, point):
        require_quadratic("affine", norm)
        flat, unravel, m, b = in_dtype_of(point)

        def flat_to_primal(row):
            return ravel_pytree(norm.to_primal(norm_state, unravel(row)))[0]

        fastest = jax.vmap(flat_to_primal)(m)
        gram = m @ fastest.T
        multipliers = jnp.linalg.solve((gram + gram.T) / 2, m @ flat - b)
        residual = unravel(multipliers @ fastest)
        return Projection(optax.tree.sub(point, residual), residual, unravel(multipliers @ m))

    def contains(point):
        flat, _, m, b = in_dtype_of(point)
        size = jnp.abs(m) @ (1 + jnp.abs(flat)) + jnp.abs(b)
        return jnp.all(jnp.abs(m @ flat - b) <= _precision.rounding(b.dtype) * size)

    return Domain(project, contains, support_of_unbounded)
