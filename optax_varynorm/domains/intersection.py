"""All of several domains at once."""

import functools

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm.domains.by_constraint import domain_of
from optax_varynorm.domains.constraint import all_at_once
from optax_varynorm.domains.domain import Domain
from optax_varynorm.domains.product import constraint_of


def intersection(*domains: Domain) -> Domain:
    """The points of all domains; the projection onto all of them together.

    ``support`` is the smallest of the members' support functions, an upper bound of the true one.
    Domains without a common point have no projection; a start outside is an error, and a projection
    that finds none reports an ``error`` near one.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> domain = vn.intersection(vn.l2_ball(1.0), vn.non_negative())
    >>> bool(domain.contains(jnp.array([0.6, -0.6])))
    False
    """
    if not domains:
        raise ValueError("`intersection` needs at least one domain; `whole_space` has no bounds.")
    constraints = [constraint_of("intersection", domain) for domain in domains]

    def constraint(point):
        flat, _ = ravel_pytree(point)
        return all_at_once([each(point) for each in constraints], flat)

    def contains(point):
        return functools.reduce(jnp.logical_and, [domain.contains(point) for domain in domains])

    def support(gradient):
        return functools.reduce(jnp.minimum, [domain.support(gradient) for domain in domains])

    return domain_of(constraint, support, contains)
