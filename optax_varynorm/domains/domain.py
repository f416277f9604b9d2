"""What a convex domain is: a set with a projection in any norm."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.norms import NormState, VaryingNorm


class Projection(NamedTuple):
    r"""The nearest point of a domain, and what led there.

    Attributes:
      point: :math:`w = \arg\min_{w \in W} \|v - w\|`.
      residual: :math:`v - w`, exactly zero where ``v`` was in the domain.
      normal: ``to_dual(v - w)``, by the KKT conditions a normal of the domain at ``w``. It comes
        from the multipliers, so a quadratic norm need not store its matrix beside the inverse.
    """

    point: optax.Params
    residual: optax.Params
    normal: optax.Updates


class Domain(NamedTuple):
    r"""A closed convex set.

    Attributes:
      project: ``(norm, norm_state, point) -> Projection``, the nearest point in that norm.
      contains: ``point -> bool``, membership up to rounding, of numbers of size one at least.
      support: ``gradient -> number``, the support function
        :math:`\sup_{w \in W} \langle g, w\rangle`; infinite where the domain is unbounded.
    """

    project: Callable[[VaryingNorm, NormState, optax.Params], Projection]
    contains: Callable[[optax.Params], Any]
    support: Callable[[optax.Updates], jax.Array]


def whole_space() -> Domain:
    """No constraint at all: every point is its own projection."""

    def project(norm, norm_state, point):
        del norm, norm_state
        return Projection(point, optax.tree.zeros_like(point), optax.tree.zeros_like(point))

    return Domain(project, lambda point: jnp.asarray(True), support_of_unbounded)


def support_of_unbounded(gradient: optax.Updates) -> jax.Array:
    """Of a domain that contains a line or ray: infinite, but for the zero gradient.

    A gradient exactly normal to the domain has a finite supremum too; rounding leaves no gradient
    exactly normal, and infinity is always an upper bound.
    """
    is_zero = _precision.inner(gradient, gradient) == 0
    return jnp.where(is_zero, 0, jnp.inf).astype(_precision.working_dtype(gradient))


def require_quadratic(domain: str, norm: VaryingNorm) -> None:
    if not norm.is_quadratic:
        raise ValueError(
            f"`{domain}` projects in quadratic norms only. Use `full_matrix`, "
            "`full_matrix_adagrad` or `fixed_norm(p=2.0)`, or a `half_space` or `hyperplane`."
        )


def require_like(what: str, tree: Any, point: optax.Params) -> None:
    def shapes(tree):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(path) or "array": jnp.shape(leaf) for path, leaf in leaves}

    if shapes(tree) != shapes(point):
        raise ValueError(
            f"{what} must be shaped like the parameters: it has the leaves {shapes(tree)}, they "
            f"have {shapes(point)}."
        )


def select(condition: jax.Array, if_true: Any, if_false: Any) -> Any:
    return jax.tree.map(lambda yes, no: jnp.where(condition, yes, no), if_true, if_false)
