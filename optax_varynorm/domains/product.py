"""One domain for each part of the parameters."""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm.domains.by_constraint import domain_of
from optax_varynorm.domains.constraint import Constraint, side_by_side
from optax_varynorm.domains.domain import Domain


def product(domain_tree: Any) -> Domain:
    """A tree of domains over a tree of parameters: each bounds its own part.

    In a diagonal norm the parts project separately, in others together.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.product({"weights": vn.simplex(), "bias": vn.box(-1.0, 1.0)})
    >>> bool(domain.contains({"weights": jnp.array([0.5, 0.5]), "bias": jnp.array(2.0)}))
    False

    Args:
      domain_tree: a tree of domains, such as a dictionary; where it has a domain the parameters
        may have a whole subtree.
    """
    domains, structure = jax.tree.flatten(domain_tree, is_leaf=lambda x: isinstance(x, Domain))
    constraints = [constraint_of("product", domain) for domain in domains]

    def parts(tree):
        try:
            return structure.flatten_up_to(tree)  # type: ignore[attr-defined]
        except ValueError as mismatch:
            raise ValueError(
                f"The tree of `product` must be shaped like the parameters: {mismatch}"
            ) from mismatch

    def constraint(point):
        pieces = parts(point)
        sizes = [ravel_pytree(piece)[0].size for piece in pieces]
        return side_by_side(list(map(operator.call, constraints, pieces)), sizes)

    def contains(point):
        pieces = zip(domains, parts(point), strict=True)
        return jnp.all(jnp.stack([domain.contains(piece) for domain, piece in pieces]))

    def support(gradient):
        pieces = zip(domains, parts(gradient), strict=True)
        return jnp.sum(jnp.stack([domain.support(piece) for domain, piece in pieces]))

    return domain_of(constraint, support, contains)


def constraint_of(name: str, domain: Any) -> Callable[[optax.Params], Constraint]:
    if not isinstance(domain, Domain):
        raise ValueError(f"`{name}` takes domains such as `vn.box(0.0, 1.0)`, not {domain!r}.")
    if domain.constraint is None:
        raise ValueError(
            f"`{name}` needs domains with a `constraint`, which a hand-made `Domain` may lack. "
            "Give it one, or make the domain by `from_euclidean`."
        )
    return domain.constraint
