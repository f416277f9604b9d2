"""The root of a sum of squared norms."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments
from optax_varynorm.norm_library import splitting
from optax_varynorm.norm_library.joint_inverse import joint_inverse_of, times
from optax_varynorm.norms import InverseMatrix, NormState, VaryingNorm, simple_norm


def sum_of_norms(*norms: VaryingNorm) -> VaryingNorm:
    r"""``thm:addnorm``: :math:`\|x\|_t^2 = \sum_i \|x\|_{i,t}^2`, with the least of the sigmas.

    With :math:`\|g\|_q \le 1`, the norm of ``thm:fullmatrix`` is
    ``sum_of_norms(lp_norm(p), full_matrix_norm(lipschitz=2**-0.5))``, that is
    :math:`\|x\|_p^2 + x^\top(I + G_t)x`: for gradients bounded in l_inf, take ``p`` near one. One
    part that is large enough for the gradients suffices, the dual norm of a sum being below each.

    The dual of a sum is an infimal convolution, so only dual norms are needed:

    .. math:: \tfrac12\|g\|_\star^2 = \min_{g = \sum_i a_i} \sum_i \tfrac12\|a_i\|_{i,\star}^2,
              \qquad \mathrm{to\_primal}(g) = \mathrm{to\_primal}_i(a_i) \text{ for every } i.

    For quadratic parts that is :math:`P (P + Q)^{-1} Q\,g` with the inverses ``P`` and ``Q`` of
    their matrices: O(d) for diagonals, else O(d^3) a round. For others the split is found by
    Newton's method (``splitting.split``), O(d^3) for each of a few steps, from the last round's.
    Its state says how good the last and the worst solution was: ``solver_residual`` and
    ``largest_solver_residual``.

    Args:
      norms: parts that are norms from the start: those that learn their units
        (``lipschitz=None``, features) are none before the first gradient.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.sum_of_norms(vn.lp_norm(2.0), vn.diagonal_norm())
    >>> state = norm.init(jnp.zeros(2))
    >>> norm.to_dual(state, jnp.ones(2)).tolist()
    [3.0, 3.0]
    """
    if not norms:
        raise ValueError("`sum_of_norms` needs at least one norm, such as `vn.lp_norm()`.")
    for norm in norms:
        if not _is_positive(norm):
            raise ValueError(
                "`sum_of_norms` adds norms that are positive from the start. One of these is none "
                "before it has seen a gradient or features: give it a `lipschitz`, or "
                "`combine` two learners, one for each norm."
            )
    quadratic = tuple(norm for norm in norms if norm.is_quadratic)
    other = tuple(norm for norm in norms if not norm.is_quadratic)
    return _solved(quadratic, other) if other else _closed(quadratic)


class ClosedSumState(NamedTuple):
    """Attributes:
    parts: the states of the norms.
    joint_inverse: the inverse of the sum of their matrices: a number, a diagonal or a matrix.
    """

    parts: tuple[NormState, ...]
    joint_inverse: jax.Array


def _closed(norms: tuple[VaryingNorm, ...]) -> VaryingNorm:
    def with_inverse(parts, like):
        return ClosedSumState(parts, joint_inverse_of(norms, parts, like))

    def init(params):
        return with_inverse(tuple(norm.init(params) for norm in norms), params)

    def observe_gradient(state, gradient):
        return with_inverse(_observe(norms, state.parts, gradient), gradient)

    def to_dual(state, point):
        return _total_dual(norms, state.parts, point)

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(times(state.joint_inverse, flat))

    def inverse(state):
        joint = state.joint_inverse
        if joint.ndim < 2:
            return joint
        return InverseMatrix(
            jnp.diagonal(joint),
            lambda indices: joint if indices is None else joint[indices][:, indices],
        )

    return simple_norm(
        init,
        observe_gradient,
        to_dual,
        to_primal,
        inverse=inverse,
        strong_convexity=_least(norms),
    )


class SolvedSumState(NamedTuple):
    """Attributes:
    parts: the states of the norms, the quadratic ones first.
    joint_inverse: the inverse of the sum of the quadratic ones' matrices; ``None`` without any.
    seen_sum: the sum of the gradients seen, flat.
    solution: how that sum is split, from which the next split starts, and its point.
    largest_solver_residual: of all rounds (``Split.solver_residual``).
    """

    parts: tuple[NormState, ...]
    joint_inverse: jax.Array | None
    seen_sum: jax.Array
    solution: splitting.Split
    largest_solver_residual: jax.Array


def _solved(quadratic: tuple[VaryingNorm, ...], other: tuple[VaryingNorm, ...]) -> VaryingNorm:
    norms = (*quadratic, *other)

    def joint_inverse(parts, like):
        return joint_inverse_of(quadratic, parts[: len(quadratic)], like) if quadratic else None

    def maps(parts, inverse, unravel):
        """The duality maps of flat vectors; the last one, quadratic if possible, takes the rest."""

        def flat_map(norm, part):
            return lambda flat: ravel_pytree(norm.to_primal(part, unravel(flat)))[0]

        flat_maps = tuple(map(flat_map, other, parts[len(quadratic) :]))
        joint = () if inverse is None else (lambda flat: times(inverse, flat),)
        return (*flat_maps, *joint)

    def init(params):
        parts = tuple(norm.init(params) for norm in norms)
        flat, _ = ravel_pytree(params)
        inverse = joint_inverse(parts, params)
        count = len(other) - (inverse is None)
        return SolvedSumState(
            parts=parts,
            joint_inverse=inverse,
            seen_sum=jnp.zeros_like(flat),
            solution=splitting.Split(
                jnp.zeros((count, flat.size), flat.dtype),
                jnp.zeros_like(flat),
                jnp.zeros((), flat.dtype),
            ),
            largest_solver_residual=jnp.zeros((), flat.dtype),
        )

    def solve(state, parts, inverse, flat, unravel):
        guess = splitting.rescale(state.solution.splits, state.seen_sum, flat)
        return splitting.split(maps(parts, inverse, unravel), flat, guess)

    def observe(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        parts = _observe(norms, state.parts, gradient)
        inverse = joint_inverse(parts, gradient)
        seen_sum = state.seen_sum + flat
        solution = solve(state, parts, inverse, seen_sum, unravel)
        return SolvedSumState(
            parts=parts,
            joint_inverse=inverse,
            seen_sum=seen_sum,
            solution=solution,
            largest_solver_residual=jnp.maximum(
                state.largest_solver_residual, solution.solver_residual
            ),
        )

    def to_dual(state, point):
        return _total_dual(norms, state.parts, point)

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(solve(state, state.parts, state.joint_inverse, flat, unravel).point)

    return simple_norm(init, observe, to_dual, to_primal, strong_convexity=_least(norms))


def _observe(norms, parts, gradient):
    pairs = zip(norms, parts, strict=True)
    return tuple(norm.observe_gradient(part, gradient) for norm, part in pairs)


def _total_dual(norms, parts, point: optax.Params) -> Any:
    pairs = zip(norms, parts, strict=True)
    duals = [norm.to_dual(part, point) for norm, part in pairs]
    return jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *duals)


def _least(norms):
    sigmas = [norm.strong_convexity for norm in norms]
    if None in sigmas:
        return None
    return min(sigmas) if all(map(_arguments.is_known, sigmas)) else jnp.min(jnp.stack(sigmas))


def _is_positive(norm: VaryingNorm) -> bool:
    """Whether a norm is one from the start: it knows all of a first gradient of one number."""
    if norm.announce is not None:
        return False
    one = jnp.ones(1)
    with jax.ensure_compile_time_eval():
        return bool(norm.measure(norm.init(one), one).known[0] == 1)
