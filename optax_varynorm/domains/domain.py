"""What a convex domain is: a set with a projection in any norm."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.domains.constraint import Constraint


class Projection(NamedTuple):
    r"""The nearest point of a domain, and what led there.

    Attributes:
      point: :math:`w = \arg\min_{w \in W} \|v - w\|`.
      residual: :math:`v - w`, exactly zero where ``v`` was in the domain.
      normal: ``to_dual(v - w)``, by the KKT conditions a normal of the domain at ``w``. It comes
        from the multipliers, so a quadratic norm need not store its matrix beside the inverse.
      error: how far the KKT conditions are from holding, relative to the distance moved
        (``constraint.kkt_error``); 0 where ``v`` was in the domain.
      multipliers: where the solver ended, and may start in the next round; empty for domains with a
        closed form.
    """

    point: optax.Params
    residual: optax.Params
    normal: optax.Updates
    error: Any = 0.0
    multipliers: Any = ()


class Domain(NamedTuple):
    r"""A closed convex set.

    Attributes:
      project: ``(norm, norm_state, point, multipliers=None) -> Projection``, the nearest point in
        that norm. The multipliers of an earlier projection save a solver most of its steps.
      contains: ``point -> bool``, membership up to rounding, of numbers of size one at least.
      support: ``gradient -> number``, the support function
        :math:`\sup_{w \in W} \langle g, w\rangle`; infinite where the domain is unbounded.
      constraint: ``point -> Constraint``, the same set as :math:`K w \in C` with flat arrays, which
        ``product`` and ``intersection`` are made of; ``None`` where it is not known.
      first_multipliers: ``params -> multipliers``, from which the first projection starts.
    """

    project: Callable[..., Projection]
    contains: Callable[[optax.Params], Any]
    support: Callable[[optax.Updates], jax.Array]
    constraint: Callable[[optax.Params], Constraint] | None = None
    first_multipliers: Callable[[optax.Params], Any] = lambda params: ()


def whole_space() -> Domain:
    """No constraint at all: every point is its own projection.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.whole_space()
    >>> bool(domain.contains(jnp.array([1e9, -1e9])))
    True
    """

    def project(norm, norm_state, point, multipliers=None):
        del norm, norm_state, multipliers
        return stay(point)

    def constraint(point):
        del point
        return Constraint(
            nearest=lambda z: z,
            slope=lambda z: lambda columns: columns,
            inside=lambda z, slack: jnp.asarray(True),
            nearest_weighted=lambda z, weights: z,
        )

    return Domain(project, lambda point: jnp.asarray(True), support_of_unbounded, constraint)


def stay(point: optax.Params, multipliers: Any = ()) -> Projection:
    """The projection of a point of the domain."""
    error = jnp.zeros((), _precision.working_dtype(point))
    zeros = optax.tree.zeros_like(point)
    return Projection(point, zeros, optax.tree.zeros_like(point), error, multipliers)


def support_of_unbounded(gradient: optax.Updates) -> jax.Array:
    """Of a domain that contains a line or ray: infinite, but for the zero gradient.

    A gradient exactly normal to the domain has a finite supremum too; rounding leaves no gradient
    exactly normal, and infinity is always an upper bound.
    """
    is_zero = _precision.inner(gradient, gradient) == 0
    return jnp.where(is_zero, 0, jnp.inf).astype(_precision.working_dtype(gradient))


def require_like(what: str, tree: Any, point: optax.Params) -> None:
    def shapes(tree):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(path) or "array": jnp.shape(leaf) for path, leaf in leaves}

    if shapes(tree) != shapes(point):
        raise ValueError(
            f"{what} must be shaped like the parameters: it has the leaves {shapes(tree)}, they "
            f"have {shapes(point)}."
        )


def require_coordinates(what: str, columns: int, coordinates: int) -> None:
    if columns != coordinates:
        raise ValueError(
            f"{what} has a matrix with {columns} columns, but the parameters have {coordinates} "
            "coordinates in all. They must agree."
        )


def require_no_nan(what: str, tree: Any) -> None:
    for leaf in jax.tree.leaves(tree):
        _arguments.require_numbers(**{what: leaf})
        _arguments.require(leaf, lambda x: ~np.isnan(x), f"{what} must not be NaN.")


def require_finite(what: str, tree: Any) -> None:
    for leaf in jax.tree.leaves(tree):
        _arguments.require(leaf, np.isfinite, f"{what} must be finite.")


def fill_like(what: str, value: Any, point: optax.Params) -> optax.Params:
    """A number for every coordinate, or a tree like the parameters, in the working dtype."""
    dtype = _precision.working_dtype(point)
    if jax.tree_util.all_leaves([value]) and jnp.ndim(value) == 0:
        return jax.tree.map(lambda x: jnp.full(jnp.shape(x), value, dtype), point)
    require_like(f"{what}, unless a number,", value, point)
    cast = [jnp.asarray(leaf, dtype) for leaf in jax.tree.leaves(value)]
    return jax.tree.unflatten(jax.tree.structure(point), cast)


def select(condition: jax.Array, if_true: Any, if_false: Any) -> Any:
    return jax.tree.map(lambda yes, no: jnp.where(condition, yes, no), if_true, if_false)
