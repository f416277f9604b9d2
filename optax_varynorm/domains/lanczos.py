r"""The secular equation without a factorization, by Lanczos' method.

After ``k`` products with ``B`` the rows of ``Q`` are an orthonormal basis of
:math:`t, Bt, \dots, B^{k-1}t` in which ``B`` is a tridiagonal matrix ``T``, and in it the secular
equation (``secular``) is one of tridiagonal systems, for every :math:`\kappa` at once:

.. math:: (I + \kappa T)\,y = \|t\|_2\, e_1, \qquad \|y\|_2 = r, \qquad u = Q^\top y

(Gould, Lucidi, Roma and Toint 1999). What is missed, :math:`t - u - \kappa B u`, has the length
:math:`\kappa \beta_k |y_k|`. :math:`I + \kappa B` is far better conditioned than ``B``, so a few
products are enough, unless the point is very far from the ball.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optax_varynorm.domains import secular
from optax_varynorm.domains.constraint import length

# Products between two looks at the secular equation, and at most.
PRODUCTS_AT_ONCE = 8
MOST_PRODUCTS = 40


class Basis(NamedTuple):
    """Attributes:
    vectors: the rows of ``Q``, zero where there is none yet.
    next_vector: the next one.
    diagonal: of ``T``, zero where unknown.
    beside: the entries beside the diagonal, the last of them to ``next_vector``.
    known: how many vectors there are.
    root: the solution of the secular equation in this basis.
    missed: the length of what it misses.
    """

    vectors: jax.Array
    next_vector: jax.Array
    diagonal: jax.Array
    beside: jax.Array
    known: jax.Array
    root: secular.Root
    missed: jax.Array


def solve(
    times: Callable[[jax.Array], jax.Array],
    unit: jax.Array,
    target: jax.Array,
    radius: jax.Array,
    start: jax.Array,
) -> secular.Root:
    """Multiplier and point as ``secular.solve`` has them, as far as so many products lead.

    Args:
      times: the product with ``B``.
      unit: about the size of ``B``.
      target: ``t``.
      radius: of the ball.
      start: a multiplier to start from.
    """
    size, dtype = target.size, target.dtype
    capacity = min(size, MOST_PRODUCTS)
    places = jnp.arange(capacity, dtype=jnp.int32)
    long = length(target)
    enough = 10 * float(jnp.finfo(dtype).eps) * long

    def extend(_, basis: Basis) -> Basis:
        here = places == basis.known
        vectors = jnp.where(here[:, None], basis.next_vector[None, :], basis.vectors)
        product = times(basis.next_vector) / unit
        # Against all vectors: float32 would lose orthogonality otherwise. Twice is enough.
        shares = vectors @ product
        product = product - shares @ vectors
        product = product - (vectors @ product) @ vectors
        beside = jnp.sqrt(jnp.vdot(product, product))
        # An invariant subspace: nothing is left but rounding.
        is_new = beside > 4 * jnp.finfo(dtype).eps * jnp.sqrt(jnp.vdot(shares, shares))
        return basis._replace(
            vectors=vectors,
            next_vector=jnp.where(is_new, product / jnp.where(is_new, beside, 1), 0),
            diagonal=jnp.where(here, jnp.vdot(shares, here.astype(dtype)), basis.diagonal),
            beside=jnp.where(here, jnp.where(is_new, beside, 0), basis.beside),
            known=basis.known + 1,
        )

    def extend_and_look(basis: Basis) -> Basis:
        basis = jax.lax.fori_loop(
            0, jnp.minimum(PRODUCTS_AT_ONCE, capacity - basis.known), extend, basis
        )
        last = basis.known - 1
        inner = jnp.where(places < last, basis.beside, 0)
        system = _tridiagonal(unit, basis.diagonal, inner)
        corner = jnp.where(places == 0, long, 0)
        root = secular.solve(system, corner, radius, basis.root.multiplier)
        missed = jnp.abs(root.multiplier * unit * basis.beside[last] * root.point[last])
        return basis._replace(root=root, missed=missed)

    def unfinished(basis: Basis):
        return (basis.missed > enough) & (basis.known < capacity)

    nothing = jnp.zeros((capacity,), dtype)
    basis = jax.lax.while_loop(
        unfinished,
        extend_and_look,
        Basis(
            vectors=jnp.zeros((capacity, size), dtype),
            next_vector=target / long,
            diagonal=nothing,
            beside=nothing,
            known=jnp.zeros((), jnp.int32),
            root=secular.Root(jnp.asarray(start, dtype), nothing),
            missed=jnp.asarray(jnp.inf, dtype),
        ),
    )
    point = basis.root.point @ basis.vectors
    return secular.Root(basis.root.multiplier, point * (radius / length(point)))


def _tridiagonal(unit, diagonal, beside) -> secular.System:
    before = jnp.concatenate([jnp.zeros_like(beside[:1]), beside[:-1]])

    def solver(kappa):
        def divide(vector):
            return jax.lax.linalg.tridiagonal_solve(
                kappa * before, 1 + kappa * diagonal, kappa * beside, vector[:, None]
            )[:, 0]

        return divide

    def times(vector):
        after = jnp.concatenate([vector[1:], jnp.zeros_like(vector[:1])])
        previous = jnp.concatenate([jnp.zeros_like(vector[:1]), vector[:-1]])
        return unit * (before * previous + diagonal * vector + beside * after)

    return secular.System(unit, solver, times)
