"""From regret to one good point: averages of the iterates."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision


class WithAveragingState(NamedTuple):
    """Attributes:
    point_average: weighted average of the points at which gradients were taken so far; the start
      before there is one.
    averaging_weight_sum: sum of their weights.
    averaged_rounds: how many there are.
    averaged_learner_state: state of the wrapped learner.
    """

    point_average: optax.Params
    averaging_weight_sum: jax.Array
    averaged_rounds: jax.Array
    averaged_learner_state: optax.OptState


class AnytimeState(NamedTuple):
    """Attributes:
    anytime_average: ``x_t``, where the next gradient is taken; the parameters, before they are
      rounded to their dtype.
    anytime_iterate: ``w_t``, what the wrapped learner plays.
    anytime_weight_sum: the sum of the weights up to and with round ``t``.
    anytime_round: ``t``, from 1.
    anytime_learner_state: state of the wrapped learner.
    """

    anytime_average: optax.Params
    anytime_iterate: optax.Params
    anytime_weight_sum: jax.Array
    anytime_round: jax.Array
    anytime_learner_state: optax.OptState


def with_averaging(
    learner: optax.GradientTransformation, power=0.0
) -> optax.GradientTransformationExtraArgs:
    r"""Online-to-batch: keep the average of the points at which gradients are taken.

    .. math:: \bar w_T = \frac{\sum_t \alpha_t w_t}{\sum_t \alpha_t}, \qquad \alpha_t = t^p.

    The learner plays exactly as it would alone. By Jensen's inequality, for convex losses whose
    expectation or average is ``f`` and :math:`\alpha = 1`,
    :math:`f(\bar w_T) - f(u) \le R_T(u) / T`: the regret of the learner, divided by the rounds.
    Read the average off with ``averaged_params``.

    Args:
      learner: any Optax optimizer.
      power: ``p``. 0 is the uniform average, the one with a guarantee by ordinary regret; 1
        gives later points more weight.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.with_averaging(optax.sgd(0.5))
    >>> params = jnp.array(4.0)
    >>> state = optimizer.init(params)
    >>> for _ in range(2):
    ...     updates, state = optimizer.update(2 * params, state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> print(vn.averaged_params(state))  # of 4 and 0
    2.0
    """
    _require_power(power)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        dtype = _precision.working_dtype(params)
        return WithAveragingState(
            point_average=_precision.copy(params, dtype),
            averaging_weight_sum=jnp.zeros((), dtype),
            averaged_rounds=jnp.zeros((), jnp.int32),
            averaged_learner_state=learner.init(params),
        )

    def update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError(
                "`with_averaging` averages the parameters, so it needs them: call "
                "`update(gradients, state, params)`."
            )
        dtype = _precision.working_dtype(params)
        averaged_rounds = state.averaged_rounds + 1
        weight = _weight(averaged_rounds, power, dtype)
        weight_sum = state.averaging_weight_sum + weight
        updates, learner_state = learner.update(
            updates, state.averaged_learner_state, params, **extra_args
        )
        return updates, WithAveragingState(
            point_average=_move(
                state.point_average, _precision.cast(params, dtype), weight / weight_sum
            ),
            averaging_weight_sum=weight_sum,
            averaged_rounds=averaged_rounds,
            averaged_learner_state=learner_state,
        )

    return optax.GradientTransformationExtraArgs(init, update)


def anytime(
    learner: optax.GradientTransformation, power=0.0
) -> optax.GradientTransformationExtraArgs:
    r"""Cutkosky, *Anytime Online-to-Batch, Optimism and Acceleration* (ICML 2019), Theorem 1: take
    the gradients at the average itself,

    .. math::
       x_t = \frac{\sum_{i \le t} \alpha_i w_i}{\sum_{i \le t} \alpha_i}, \qquad
       g_t \in \partial f(x_t), \qquad \alpha_t = t^p,

    and hand the learner, which plays :math:`w_t`, the gradient :math:`\alpha_t g_t`. The parameters
    are :math:`x_t`, so there is nothing to evaluate but them. With
    :math:`A_t = \sum_{i \le t}\alpha_i` the definition reads
    :math:`\alpha_t (w_t - x_t) = A_{t-1} (x_t - x_{t-1})`, so for convex ``f``

    .. math::
       \alpha_t (f(x_t) - f(u))
       \le \alpha_t \langle g_t, w_t - u\rangle + A_{t-1} \langle g_t, x_{t-1} - x_t\rangle
       \le \alpha_t \langle g_t, w_t - u\rangle + A_{t-1} (f(x_{t-1}) - f(x_t)),

    and the sum telescopes: after every round, whichever is the last,

    .. math:: f(x_T) - f(u) \le \frac{\sum_t \alpha_t \langle g_t, w_t - u\rangle}{A_T}.

    Args:
      learner: any Optax optimizer; it is given its own iterate as ``params``.
      power: ``p``. With 0 the learner sees the gradients as they are. With 1 it sees them ``t``
        times as large: a learner with a Lipschitz bound needs ``T`` times that of the gradients.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.anytime(optax.sgd(1.0))
    >>> params = jnp.array(4.0)
    >>> state = optimizer.init(params)
    >>> for _ in range(2):
    ...     updates, state = optimizer.update(jnp.array(1.0), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> print(params)  # the average of 4, 3 and 2
    3.0
    """
    _require_power(power)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        dtype = _precision.working_dtype(params)
        return AnytimeState(
            anytime_average=params,
            anytime_iterate=_precision.copy(params, dtype),
            anytime_weight_sum=jnp.ones((), dtype),
            anytime_round=jnp.ones((), jnp.int32),
            anytime_learner_state=learner.init(_precision.copy(params, dtype)),
        )

    def update(updates, state, params, *, precision, **extra_args):
        dtype = _precision.working_dtype(params)
        weight = _weight(state.anytime_round, power, dtype)
        learner_step, learner_state = learner.update(
            jax.tree.map(lambda g: weight * g, updates),
            state.anytime_learner_state,
            state.anytime_iterate,
            **extra_args,
        )
        iterate = optax.apply_updates(state.anytime_iterate, learner_step)
        next_weight = _weight(state.anytime_round + 1, power, dtype)
        weight_sum = state.anytime_weight_sum + next_weight
        average = _move(state.anytime_average, iterate, next_weight / weight_sum)
        step = _precision.step_to(average, state.anytime_average, params, precision)
        return step, AnytimeState(
            anytime_average=average,
            anytime_iterate=iterate,
            anytime_weight_sum=weight_sum,
            anytime_round=state.anytime_round + 1,
            anytime_learner_state=learner_state,
        )

    return _precision.in_working_precision("anytime", init, update, knows_its_place=True)


def averaged_params(state: optax.OptState, params: optax.Params | None = None) -> optax.Params:
    """The average that ``with_averaging`` or ``anytime`` keeps, wherever it is in a state.

    Args:
      state: the state of an optimizer with one of the two inside, in a chain for example.
      params: parameters whose dtypes the average is cast to, and whose containers it is put in,
        such as the state of a ``flax.nnx`` module. Without them it has the dtype it is kept in,
        float32 for parameters narrower than that.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> optimizer = vn.with_averaging(optax.sgd(1.0))
    >>> params = jnp.zeros(())
    >>> state = optimizer.init(params)
    >>> for _ in range(3):  # at 0, -1 and -2
    ...     updates, state = optimizer.update(jnp.ones(()), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> round(float(vn.averaged_params(state)), 6)
    -1.0
    """
    found = _find(state)
    if not found:
        raise ValueError(
            "This state has no average. Wrap the optimizer before `init`: "
            "`with_averaging(optimizer)` or `anytime(optimizer)`."
        )
    if len(found) > 1:
        raise ValueError(
            f"This state has {len(found)} averages, so it is unclear which one is meant. Pass the "
            "part of the state that has one of them."
        )
    (average,) = found
    if params is None:
        return average
    average = _precision.in_containers_of(params, average)
    return jax.tree.map(lambda param, leaf: leaf.astype(jnp.result_type(param)), params, average)


def _find(state):
    """All averages of a state, also of those inside a wrapped learner's."""
    found = []
    kinds = (WithAveragingState, AnytimeState)
    for node in jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, kinds)):
        if isinstance(node, WithAveragingState):
            found += [node.point_average, *_find(node.averaged_learner_state)]
        elif isinstance(node, AnytimeState):
            found += [node.anytime_average, *_find(node.anytime_learner_state)]
    return found


def _require_power(power):
    _arguments.require_numbers(power=power)
    _arguments.require(
        power,
        lambda number: number.ndim == 0 and 0 <= number < float("inf"),
        f"`power` is the growth of the weights t^power and must not be negative, but is {power}.",
    )


def _weight(number, power, dtype):
    return number.astype(dtype) ** jnp.asarray(power, dtype)


def _move(average, point, share):
    """The average with one more point that has this share of all weight."""
    return jax.tree.map(lambda old, new: old + share * (new - old), average, point)
