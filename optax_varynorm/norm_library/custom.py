"""A norm of the user's own: one differentiable function."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from optax_varynorm import _arguments, _precision
from optax_varynorm.norm_library import convex_newton
from optax_varynorm.norms import VaryingNorm, simple_norm


class CustomNormState(NamedTuple):
    """Attributes:
    custom_state: what the user's functions keep.
    seen_sum: the sum of the gradients seen, flat.
    solved_leader: ``to_primal`` of that sum, from which solutions start: the learner asks for that
      of nearly the same sum.
    solver_residual: how far ``to_dual`` of it is from the sum, relative to the sum's length.
    largest_solver_residual: of all rounds.
    """

    custom_state: Any
    seen_sum: jax.Array
    solved_leader: jax.Array
    solver_residual: jax.Array
    largest_solver_residual: jax.Array


def custom_norm(
    squared_norm: Callable[[Any, Any], jax.Array],
    observe_gradient: Callable[[Any, Any], Any] | None = None,
    *,
    strong_convexity: float,
    init: Callable[[Any], Any] | None = None,
) -> VaryingNorm:
    r"""``thm:varynorm`` for a sequence of norms of your own, given as :math:`\|x\|_t^2`.

    The duality maps come from it: ``to_dual`` is the gradient of its half, and ``to_primal(g)`` the
    maximizer of :math:`\langle g, x\rangle - \tfrac12\|x\|_t^2`, by Newton's method with a line
    search: O(d^3) for each of a few steps, from the last round's leader. Second derivatives should
    be bounded on the unit sphere. Those of an l_p norm are not, at zero coordinates, which makes it
    slow: build such norms from ``lp_norm``, ``group_norm`` and ``sum_of_norms``. The state says how
    good the last and the worst solution was: ``solver_residual`` and ``largest_solver_residual``.

    ``vn.check_norm`` looks for what is not true of the norms, on gradients of yours. No bound is
    valid unless they increase, are as strongly convex as claimed, and no gradient has a dual norm
    above one in the norm before it (longer ones are clipped and counted).

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> norm = vn.custom_norm(
    ...     lambda squares, x: jnp.sum((2 + squares) * x**2),
    ...     lambda squares, g: squares + g**2,
    ...     init=jnp.zeros_like,
    ...     strong_convexity=1.0,
    ... )
    >>> vn.check_norm(norm, jnp.array([[0.6, -0.8], [0.0, 1.0]]))
    >>> optimizer = vn.with_varying_norm(norm, vn.scale_by_coin_betting(vn.ftrl_step()))

    Args:
      squared_norm: :math:`\|x\|_t^2` from the state and ``x``, a tree like the parameters; written
        in JAX, twice differentiable but at zero.
      observe_gradient: the next state from a state and a gradient, such that the norm does not
        decrease, and does not change with a zero gradient; the norm is fixed if ``None``.
      strong_convexity: the sigma for which half the square is sigma-strongly convex with respect to
        the norm: one for quadratic norms, and never more.
      init: the first state, from the parameters; empty if ``None``.
    """
    _arguments.require(
        strong_convexity,
        lambda sigma: (sigma > 0) & (sigma <= 1),
        "`strong_convexity` must lie in (0, 1]: between x and -x no norm has more than one. It is "
        f"{strong_convexity}.",
    )

    def half_and_dual(custom_state, flat, unravel):
        """Half the square and its gradient; zero at zero, where it need not be differentiable."""

        def half(vector):
            return squared_norm(custom_state, unravel(vector)) / 2

        is_zero = jnp.all(flat == 0)
        found = jax.value_and_grad(half)(jnp.where(is_zero, 1, flat))
        return tuple(jnp.where(is_zero, 0, part) for part in found)

    def solve(custom_state, gradient, unravel, guess):
        """``to_primal`` of a flat gradient, and its residual."""
        if not gradient.size:
            return gradient, jnp.zeros((), gradient.dtype)
        largest = jnp.max(jnp.abs(gradient))
        unit = jnp.where(largest > 0, largest, 1)
        target = gradient / unit

        def measure(x):
            half, dual = half_and_dual(custom_state, x, unravel)
            slope = dual - target
            return convex_newton.Measure(
                value=half - jnp.vdot(target, x),
                slope=slope,
                error=_precision.ratio(_precision.length(slope), _precision.length(target)),
            )

        def best_multiple(direction):
            square = squared_norm(custom_state, unravel(direction))
            return _precision.ratio(jnp.vdot(target, direction), square) * direction

        # Where the gradient is zero, the point need not be, and second derivatives may be infinite.
        cold = jnp.where(target == 0, 1e-3, target)
        warm = jnp.where(jnp.any(guess != 0), guess, cold)
        starts = jax.vmap(best_multiple)(jnp.stack([cold, warm]))
        start = starts[jnp.argmin(jax.vmap(measure)(starts).value)]
        start = jnp.where(largest > 0, start, 0)
        point, residual = convex_newton.solve(measure, start)
        return unit * point, residual

    def init_state(params):
        flat, _ = ravel_pytree(params)
        zero = jnp.zeros((), flat.dtype)
        return CustomNormState(
            custom_state=() if init is None else init(params),
            seen_sum=jnp.zeros_like(flat),
            solved_leader=jnp.zeros_like(flat),
            solver_residual=zero,
            largest_solver_residual=jnp.zeros_like(zero),
        )

    def observe(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        custom_state = state.custom_state
        if observe_gradient is not None:
            custom_state = observe_gradient(custom_state, gradient)
        seen_sum = state.seen_sum + flat
        leader, residual = solve(custom_state, seen_sum, unravel, state.solved_leader)
        return CustomNormState(
            custom_state=custom_state,
            seen_sum=seen_sum,
            solved_leader=leader,
            solver_residual=residual,
            largest_solver_residual=jnp.maximum(state.largest_solver_residual, residual),
        )

    def to_dual(state, point):
        flat, unravel = ravel_pytree(point)
        return unravel(half_and_dual(state.custom_state, flat, unravel)[1])

    def to_primal(state, gradient):
        flat, unravel = ravel_pytree(gradient)
        return unravel(solve(state.custom_state, flat, unravel, state.solved_leader)[0])

    return simple_norm(init_state, observe, to_dual, to_primal, strong_convexity=strong_convexity)
