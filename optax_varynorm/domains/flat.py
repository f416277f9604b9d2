"""Domains bounded by hyperplanes that project in closed form: half-space, hyperplane, affine."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains.by_constraint import Found, domain_of, find
from optax_varynorm.domains.constraint import kkt_error
from optax_varynorm.domains.domain import (
    Domain,
    Projection,
    require_coordinates,
    require_finite,
    require_like,
    select,
    support_of_unbounded,
)
from optax_varynorm.domains.polyhedron import at_most, exactly, unit_rows


def half_space(normal, offset) -> Domain:
    r"""The points with :math:`\langle a, w\rangle \le b`; ``a`` is a tree like the parameters.

    In every norm the nearest point lies along ``to_primal(a)``, the direction in which
    :math:`\langle a, \cdot\rangle` grows fastest:

    .. math::
       w = v - \lambda\,\mathrm{to\_primal}(a), \qquad
       \lambda = \frac{\max(0, \langle a, v\rangle - b)}{\|a\|_\star^2}, \qquad
       \mathrm{to\_dual}(v - w) = \lambda a.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.half_space(jnp.array([1.0, 1.0]), 1.0)
    >>> bool(domain.contains(jnp.array([2.0, -1.5])))
    True
    """
    return _one_constraint(
        "half_space", normal, offset, lambda violation: jnp.maximum(violation, 0), at_most
    )


def hyperplane(normal, offset) -> Domain:
    r"""The points with :math:`\langle a, w\rangle = b`; as ``half_space``, from both sides.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.hyperplane(jnp.array([1.0, 1.0]), 1.0)
    >>> bool(domain.contains(jnp.array([2.0, -1.0])))
    True
    """
    return _one_constraint("hyperplane", normal, offset, lambda violation: violation, exactly)


def _one_constraint(name, normal, offset, count, as_rows) -> Domain:
    require_finite(f"The normal of `{name}`", normal)
    _arguments.require(offset, np.isfinite, f"The offset of `{name}` must be finite, not {offset}.")
    if all(_arguments.is_known(a) and not np.any(a) for a in jax.tree.leaves(normal)):
        raise ValueError(f"The normal of `{name}` is zero, so it bounds nothing. Give a direction.")

    def in_dtype_of(point):
        require_like(f"The normal of `{name}`", normal, point)
        dtype = _precision.working_dtype(point)
        return _precision.cast(normal, dtype), jnp.asarray(offset, dtype)

    def project(norm, norm_state, point, multipliers=None):
        del multipliers
        a, b = in_dtype_of(point)
        fastest = norm.to_primal(norm_state, a)
        violation = count(_precision.inner(a, point) - b)
        multiplier = violation / _precision.inner(a, fastest)
        residual = optax.tree.scale(multiplier, fastest)
        moved = select(multiplier == 0, point, optax.tree.sub(point, residual))
        left = jnp.abs(count(_precision.inner(a, moved) - b))
        error = left / jnp.where(violation == 0, 1, jnp.abs(violation) + jnp.abs(b))
        return Projection(moved, residual, optax.tree.scale(multiplier, a), error)

    def contains(point):
        a, b = in_dtype_of(point)
        sizes = jax.tree.map(lambda x: 1 + jnp.abs(x), point)
        size = jnp.abs(b) + _precision.inner(jax.tree.map(jnp.abs, a), sizes)
        violation = jnp.abs(count(_precision.inner(a, point) - b))
        return violation <= _precision.rounding(b.dtype) * size

    def constraint(point):
        a, b = in_dtype_of(point)
        return as_rows(*unit_rows(ravel_pytree(a)[0][None, :], b[None]))

    return Domain(project, contains, support_of_unbounded, constraint)


def affine(matrix, offset) -> Domain:
    r"""The points with :math:`M w = b`.

    ``matrix`` has one row a constraint and one column for each coordinate of the parameters in
    tree order (``jax.flatten_util.ravel_pytree``). In a quadratic norm the KKT conditions of the
    projection are linear; in others ``newton.solve`` finds it.

    .. math::
       M A^{-1} M^\top \lambda = M v - b, \qquad w = v - A^{-1} M^\top \lambda, \qquad
       A (v - w) = M^\top \lambda.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.affine(jnp.array([[1.0, 1.0, 1.0]]), jnp.array([1.0]))
    >>> bool(domain.contains(jnp.array([0.5, 0.75, -0.25])))
    True
    """
    if np.ndim(matrix) != 2 or np.shape(offset) != np.shape(matrix)[:1]:
        raise ValueError(
            "`affine` needs a matrix of shape (constraints, coordinates) and an offset of shape "
            f"(constraints,), but they have shapes {np.shape(matrix)} and {np.shape(offset)}."
        )
    require_finite("The matrix of `affine`", matrix)
    require_finite("The offset of `affine`", offset)
    if _arguments.is_known(matrix) and np.linalg.matrix_rank(matrix) < np.shape(matrix)[0]:
        raise ValueError(
            "The rows of `affine`'s matrix are linearly dependent, so its constraints repeat or "
            "contradict each other. Remove the redundant rows."
        )

    def constraint(point):
        flat, _ = ravel_pytree(point)
        require_coordinates("`affine`", np.shape(matrix)[1], flat.size)
        dtype = _precision.working_dtype(point)
        return exactly(*unit_rows(jnp.asarray(matrix, dtype), jnp.asarray(offset, dtype)))

    def find_affine(constraint, point, metric, start):
        if metric.inverse is None:
            return find(constraint, point, metric, start)
        ours, (flat, _) = constraint(point), ravel_pytree(point)
        fastest = jax.vmap(metric.to_primal)(ours.rows)
        gram = ours.rows @ fastest.T
        gram = (gram + gram.T) / 2
        target = ours.apply(flat)
        multipliers = jnp.linalg.solve(gram, target - ours.nearest(target))
        error = kkt_error(ours, target, gram @ multipliers, multipliers)
        moved = multipliers @ fastest
        return Found(multipliers, flat - moved, error, moved)

    return domain_of(constraint, support_of_unbounded, find_in=find_affine)
