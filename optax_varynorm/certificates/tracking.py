"""Exact regret against any comparator, read off the state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.certificates.compensated import CompensatedSum
from optax_varynorm.domains import Domain
from optax_varynorm.domains.domain import require_like
from optax_varynorm.learners import Certified, slack_of
from optax_varynorm.norms import select


class TrackRegretState(NamedTuple):
    """Attributes:
    tracked_rounds: ``T``, the number of gradients that were added up.
    untracked_rounds: the number of others: not finite, or too large for a sum of them to be.
    tracked_origin: ``w_1``.
    tracked_loss: the sum of the losses :math:`<g_t, w_t - w_1>`.
    tracked_gradient: the sum of the gradients.
    tracked_learner_state: state of the learner.
    """

    tracked_rounds: jax.Array
    untracked_rounds: jax.Array
    tracked_origin: optax.Params
    tracked_loss: CompensatedSum
    tracked_gradient: CompensatedSum
    tracked_learner_state: optax.OptState


def track_regret(learner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Keep what the regret against every comparator needs: two sums.

    .. math:: R_T(u) = \sum_t \langle g_t, w_t - w_1\rangle
              - \Big\langle \sum_t g_t, u - w_1\Big\rangle.

    Read it off with ``regret(state, u)``, its supremum over a domain with
    ``worst_regret(state, domain)``, the learner's guarantee with
    ``regret_bound(optimizer, state, u)``. The points are those the parameters had, whoever moved
    them: the sums stay right with a weight decay, a schedule, or a mask after the learner. A
    gradient that is not finite, or too large for sums of it to be, has no regret: such rounds are
    left out, and counted in ``untracked_rounds``.

    Args:
      learner: any Optax optimizer.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.track_regret(vn.full_matrix())
    >>> params = jnp.zeros(2)
    >>> state = optimizer.init(params)
    >>> for gradient in jnp.array([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]]):
    ...     updates, state = optimizer.update(gradient, state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> u = jnp.array([-1.0, 0.0])
    >>> bool(vn.regret(state, u) <= vn.regret_bound(optimizer, state, u))
    True
    """
    learner_slack = slack_of(learner)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        return TrackRegretState(
            tracked_rounds=jnp.zeros((), jnp.int32),
            untracked_rounds=jnp.zeros((), jnp.int32),
            tracked_origin=params,
            tracked_loss=CompensatedSum.zeros_like(jnp.zeros((), _precision.working_dtype(params))),
            tracked_gradient=CompensatedSum.zeros_like(params),
            tracked_learner_state=learner.init(params),
        )

    def update(updates, state, params, **extra_args):
        step, learner_state = learner.update(
            updates, state.tracked_learner_state, params, **extra_args
        )
        summable = _precision.is_summable(updates)
        gradient = select(summable, updates)
        loss = _precision.inner(gradient, optax.tree.sub(params, state.tracked_origin))
        return step, TrackRegretState(
            tracked_rounds=state.tracked_rounds + summable.astype(jnp.int32),
            untracked_rounds=state.untracked_rounds + (~summable).astype(jnp.int32),
            tracked_origin=state.tracked_origin,
            tracked_loss=state.tracked_loss.plus(loss),
            tracked_gradient=state.tracked_gradient.plus(gradient),
            tracked_learner_state=learner_state,
        )

    def slack(state, comparator, *geometry):
        return learner_slack(state.tracked_learner_state, comparator, *geometry)

    return Tracked(_precision.in_working_precision("track_regret", init, update), slack)


class Tracked(Certified):
    """The type of ``track_regret(...)``, by which ``regret_bound`` knows whose state it wants."""


def regret(state: optax.OptState, comparator: optax.Params) -> jax.Array:
    r""":math:`R_T(u) = \sum_t \langle g_t, w_t - u\rangle`, exact but for rounding.

    For convex losses it is at least the difference of the losses, :math:`\sum_t \ell_t(w_t) -
    \ell_t(u)`.

    Args:
      state: the state of an optimizer with ``track_regret`` in it.
      comparator: ``u``, a tree like the parameters.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.track_regret(vn.fixed_norm(lipschitz=1.0))
    >>> params = jnp.zeros(2)
    >>> state = optimizer.init(params)
    >>> for _ in range(20):
    ...     updates, state = optimizer.update(jnp.array([1.0, 0.0]), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(vn.regret(state, jnp.array([-1.0, 0.0])) < 20)  # 20 is that of standing still
    True
    """
    tracked = _find(state)
    offset = optax.tree.sub(_like_origin(tracked, comparator), tracked.tracked_origin)
    gradient = tracked.tracked_gradient
    lost = _precision.inner(gradient.lost, offset)
    return tracked.tracked_loss.value() - (_precision.inner(gradient.total, offset) + lost)


def worst_regret(state: optax.OptState, domain: Domain) -> jax.Array:
    r""":math:`\sup_{u \in W} R_T(u)`, by the domain's support function.

    Infinite on unbounded domains.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.track_regret(vn.fixed_norm(lipschitz=1.0))
    >>> params = jnp.zeros(2)
    >>> state = optimizer.init(params)
    >>> for _ in range(20):
    ...     updates, state = optimizer.update(jnp.array([1.0, 0.0]), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> worst = vn.worst_regret(state, vn.l2_ball(1.0))
    >>> bool(jnp.isclose(worst, vn.regret(state, jnp.array([-1.0, 0.0])), rtol=1e-5))
    True
    """
    tracked = _find(state)
    downhill = optax.tree.scale(-1, tracked.tracked_gradient.value())
    at_origin = _precision.inner(downhill, tracked.tracked_origin)
    highest, loss = domain.support(downhill), tracked.tracked_loss.value()
    # Far from zero the two nearly cancel; below their rounding nobody knows.
    digits = _precision.inner_rounding(downhill, tracked.tracked_origin)
    digits += 8 * float(jnp.finfo(loss.dtype).eps) * (jnp.abs(highest) + jnp.abs(loss))
    return loss + (highest - at_origin) + digits


def certified_gap(state: optax.OptState, domain: Domain) -> jax.Array:
    r"""``worst_regret`` divided by the rounds: a proof of how far from optimal the average is.

    When all gradients are (sub)gradients of one convex function ``f``, at the points played,

    .. math::
       f\Big(\frac1T \sum_t w_t\Big) - \min_{u \in W} f(u)
       \le \frac1T \sum_t f(w_t) - f(u) \le \frac1T \sup_{u\in W} R_T(u).

    With gradients of random losses it holds in expectation, for their mean. ``with_averaging``
    keeps the average. Infinite before the first round, and after a gradient that could not be
    added up (``untracked_rounds``), whose point is part of the average all the same.

    >>> import jax, jax.numpy as jnp, optax, optax_varynorm as vn
    >>> ball = vn.l2_ball(1.0)
    >>> optimizer = vn.track_regret(vn.fixed_norm(lipschitz=2.0, domain=ball))
    >>> params = jnp.zeros(2)
    >>> state = optimizer.init(params)
    >>> for _ in range(50):
    ...     gradient = jax.grad(lambda w: jnp.sum(jnp.abs(w - 0.5)))(params)
    ...     updates, state = optimizer.update(gradient, state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(0 < vn.certified_gap(state, ball) < 1)
    True
    """
    tracked = _find(state)
    rounds, worst = tracked.tracked_rounds, worst_regret(state, domain)
    is_proof = (rounds > 0) & (tracked.untracked_rounds == 0)
    return jnp.where(is_proof, worst / jnp.maximum(rounds, 1).astype(worst.dtype), jnp.inf)


def regret_bound(
    optimizer: optax.GradientTransformation, state: optax.OptState, comparator: optax.Params
) -> jax.Array:
    r"""The certified right-hand side: the regret against ``u`` is at most this.

    ``thm:varynorm`` for the norms that were used, the wealth that was bet and the gradients that
    the learner received, plus, exactly, everything else that happened: what clipping hid from the
    learner, what rounding lost, what other transformations did to the parameters. On a domain, for
    ``u`` inside it. For matrix norms it costs O(d^3).

    Args:
      optimizer: ``track_regret(...)``, or the learner in it. A chain around it has no bound of its
        own, but its state has all that is asked for.
      state: the state of an optimizer with that ``track_regret`` in it.
      comparator: ``u``, a tree like the parameters.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.track_regret(vn.fixed_norm(lipschitz=1.0))
    >>> params = jnp.zeros(2)
    >>> state = optimizer.init(params)
    >>> for _ in range(20):
    ...     updates, state = optimizer.update(jnp.array([1.0, 0.0]), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> comparator = jnp.array([-1.0, 0.0])
    >>> bool(vn.regret(state, comparator) <= vn.regret_bound(optimizer, state, comparator))
    True
    """
    tracked = _find(state)
    offset = optax.tree.sub(_like_origin(tracked, comparator), tracked.tracked_origin)
    learner_state = tracked.tracked_learner_state
    if isinstance(optimizer, Tracked):
        learner_state = tracked
    return regret(tracked, comparator) + slack_of(optimizer)(learner_state, offset)


def _like_origin(tracked, comparator):
    require_like("The comparator", comparator, tracked.tracked_origin)
    trees = map(jax.tree.structure, (comparator, tracked.tracked_origin))
    if len(set(trees)) > 1:
        raise ValueError(
            "The comparator has the parameters' leaves in other containers. With `flax.nnx` pass "
            "state and comparator without variables: `nnx.as_pure(...)` of each."
        )
    return _precision.cast(comparator, _precision.working_dtype(tracked.tracked_origin))


def _find(state: optax.OptState) -> TrackRegretState:
    leaves = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, TrackRegretState))
    found = [node for node in leaves if isinstance(node, TrackRegretState)]
    if len(found) != 1:
        raise ValueError(
            f"This state has {len(found) or 'no'} record{'s' if len(found) > 1 else ''} of the "
            "regret. Wrap the optimizer in `track_regret`, once, before `init`."
        )
    return found[0]
