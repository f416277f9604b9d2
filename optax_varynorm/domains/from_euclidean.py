"""A domain from any Euclidean projection."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm.domains.by_constraint import domain_of
from optax_varynorm.domains.constraint import Constraint
from optax_varynorm.domains.domain import Domain


def from_euclidean(
    projection: Callable[[optax.Params], optax.Params],
    support: Callable[[optax.Updates], jax.Array] | None = None,
) -> Domain:
    r"""The set that a Euclidean projection maps to, such as those of ``optax.projections``.

    Projects in every norm: the projection :math:`\Pi` and its derivative in forward mode, an
    element of the generalized Jacobian, are all that ``newton.solve`` needs. In a Euclidean norm
    it is ``projection`` itself.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> domain = vn.from_euclidean(optax.projections.projection_non_negative)
    >>> bool(domain.contains(jnp.array([1.0, -1.5])))
    False

    Args:
      projection: maps a tree to the nearest tree of the set; written in JAX.
      support: the support function of the set. A projection does not give one, so without it
        ``domain.support`` is an error.
    """

    def constraint(point):
        flat, unravel = ravel_pytree(point)

        def nearest(z):
            return ravel_pytree(projection(unravel(z)))[0].astype(flat.dtype)

        def slope(z):
            def product(direction):
                turned = jax.jvp(nearest, (z,), (direction,))[1]
                return jnp.where(jnp.isfinite(turned), turned, 0)

            return jax.vmap(product, in_axes=1, out_axes=1)

        def inside(z, slack):
            return jnp.all(jnp.abs(nearest(z) - z) <= slack)

        return Constraint(nearest, slope, inside)

    def no_support(gradient):
        raise ValueError(
            "`from_euclidean` knows no support function. Pass one: `from_euclidean(projection, "
            "support=lambda gradient: ...)`, the largest inner product with a point of the set."
        )

    return domain_of(constraint, support or no_support)
