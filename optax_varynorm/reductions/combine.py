"""The best of several learners, by adding them up."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.certificates.certified import CertifiedTransformation, regret_bound_of


class CombineState(NamedTuple):
    """Attributes:
    combined_origin: ``w_1``, where the parameters started.
    points: what each learner plays.
    learner_states: state of each learner.
    """

    combined_origin: optax.Params
    points: tuple[optax.Params, ...]
    learner_states: tuple[optax.OptState, ...]


def combine(*learners: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Play :math:`w_t = w_1 + \sum_j (w_t^j - w_1)` and give the same gradient to every learner.

    Losses are linear, so the regrets add up (Cutkosky, *Combining online learning guarantees*,
    COLT 2019): for every way to write :math:`u - w_1 = \sum_j (u_j - w_1)`,

    .. math:: R_T(u) = \sum_j R_T^j(u_j).

    With :math:`u_i = u` and :math:`u_j = w_1` elsewhere, that is the regret of any one learner plus
    what the others lose against the starting point, at most epsilon each where nothing is clipped.
    So ``combine`` has the least of its learners' bounds, whichever it is, without knowing which.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.combine(vn.diagonal(), vn.full_matrix(epsilon=0.1))
    >>> state = optimizer.init(jnp.zeros(2))
    """
    if not learners:
        raise ValueError("`combine` needs at least one learner, such as `vn.fixed_norm()`.")
    learner_bounds = tuple(map(regret_bound_of, learners))
    learners = tuple(optax.with_extra_args_support(learner) for learner in learners)

    def init(params):
        dtype = _precision.working_dtype(params)
        return CombineState(
            combined_origin=params,
            points=tuple(_precision.copy(params, dtype) for _ in learners),
            learner_states=tuple(learner.init(params) for learner in learners),
        )

    def update(updates, state, params, **extra_args):
        steps, states = zip(
            *(
                learner.update(updates, learner_state, point, **extra_args)
                for learner, learner_state, point in zip(
                    learners, state.learner_states, state.points, strict=True
                )
            ),
            strict=True,
        )
        points = tuple(map(optax.apply_updates, state.points, steps))

        def total_step(origin, param, *played):
            return sum((point - origin for point in played), start=origin) - param

        step = jax.tree.map(total_step, state.combined_origin, params, *points)
        return step, CombineState(state.combined_origin, points, states)

    def regret_bound(state, comparator, norm=None, norm_state=None):
        def bounds(point):
            return jnp.stack(
                [
                    bound(learner_state, point, norm, norm_state)
                    for bound, learner_state in zip(
                        learner_bounds, state.learner_states, strict=True
                    )
                ]
            )

        # One learner for the comparator, all others for the starting point: in row i, learner i.
        chosen = jnp.eye(len(learners), dtype=bool)
        candidates = jnp.where(chosen, bounds(comparator), bounds(state.combined_origin)[None])
        return jnp.min(jnp.sum(candidates, axis=1))

    layer = _precision.in_working_precision("combine", init, update)
    return CertifiedTransformation(layer, regret_bound)
