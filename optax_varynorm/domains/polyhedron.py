"""The intersection of finitely many half-spaces."""

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains.box import bounded_entries
from optax_varynorm.domains.by_constraint import domain_of
from optax_varynorm.domains.constraint import Constraint
from optax_varynorm.domains.domain import (
    Domain,
    require_coordinates,
    require_finite,
    support_of_unbounded,
)


def polyhedron(matrix, offset) -> Domain:
    r"""The points with :math:`M w \le b`.

    ``matrix`` has one row a constraint and one column for each coordinate of the parameters in
    tree order (``jax.flatten_util.ravel_pytree``); rows may repeat or depend on each other.

    ``support`` is infinite for every gradient but zero: a linear program would have to tell whether
    the polyhedron is bounded, and infinity is always an upper bound. The ``intersection`` with a
    box or a ball around it has a finite one.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.polyhedron(jnp.array([[1.0, 2.0], [-1.0, 0.0]]), jnp.array([2.0, 0.0]))
    >>> bool(domain.contains(jnp.array([1.0, 0.25])))
    True
    """
    if np.ndim(matrix) != 2 or np.shape(offset) != np.shape(matrix)[:1]:
        raise ValueError(
            "`polyhedron` needs a matrix of shape (constraints, coordinates) and an offset of "
            f"shape (constraints,), but they have shapes {np.shape(matrix)} and {np.shape(offset)}."
        )
    require_finite("The matrix of `polyhedron`", matrix)
    require_finite("The offset of `polyhedron`", offset)
    if _arguments.is_known(matrix) and _arguments.is_known(offset):
        _require_some_point(np.asarray(matrix, float), np.asarray(offset, float))

    def constraint(point):
        flat, _ = ravel_pytree(point)
        require_coordinates("`polyhedron`", np.shape(matrix)[1], flat.size)
        dtype = _precision.working_dtype(point)
        rows, bounds = unit_rows(jnp.asarray(matrix, dtype), jnp.asarray(offset, dtype))
        return at_most(rows, bounds)

    return domain_of(constraint, support_of_unbounded)


def at_most(rows, bounds) -> Constraint:
    """``K w <= b``."""

    def slope(z):
        free = (z < bounds)[:, None]
        return lambda columns: jnp.where(free, columns, 0)

    return Constraint(
        nearest=lambda z: jnp.minimum(z, bounds),
        slope=slope,
        inside=lambda z, slack: jnp.all(z <= bounds + slack),
        rows=rows,
        faces=bounded_entries(jnp.full_like(bounds, -jnp.inf), bounds),
    )


def exactly(rows, bounds) -> Constraint:
    """``K w = b``."""
    return Constraint(
        nearest=lambda z: bounds,
        slope=lambda z: jnp.zeros_like,
        inside=lambda z, slack: jnp.all(jnp.abs(z - bounds) <= slack),
        rows=rows,
        faces=bounded_entries(bounds, bounds),
    )


def unit_rows(rows, bounds):
    """Rows of length one, so that no constraint outweighs another; a row of zeros stays."""
    lengths = jnp.linalg.norm(rows, axis=1)
    lengths = jnp.where(lengths > 0, lengths, 1)
    return rows / lengths[:, None], bounds / lengths


def _require_some_point(matrix, offset):
    from scipy import optimize  # slow to import, and needed here alone

    found = optimize.linprog(
        np.zeros(matrix.shape[1]), A_ub=matrix, b_ub=offset, bounds=(None, None)
    )
    if found.status == 2:
        raise ValueError(
            "`polyhedron` is empty: no point satisfies all its constraints. Raise the offsets or "
            "remove the rows that contradict each other."
        )
