"""The best of several learners, by adding them up."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm.learners import Certified, displacement_of, slack_of
from optax_varynorm.reductions.anchored import anchored_if_narrow


class CombineState(NamedTuple):
    """Attributes:
    learner_states: state of each learner.
    """

    learner_states: tuple[optax.OptState, ...]


def combine(*learners: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    r"""Add up the displacements of several learners and give all of them the same gradient.

    .. math:: w_t = w_1 + \sum_j z_t^j

    Losses are linear, so the regrets add up (Cutkosky, *Combining online learning guarantees*,
    COLT 2019): for every way to write :math:`u - w_1 = \sum_j u_j`,

    .. math:: R_T(u) = \sum_j R_T^j(u_j).

    With :math:`u_i = u - w_1` and :math:`u_j = 0` elsewhere, that is the regret of any one learner
    plus what the others lose against the starting point, at most epsilon each where nothing is
    clipped. So ``combine`` has the least of its learners' bounds, whichever it is, without knowing
    which. Parameters narrower than float32 are ``anchored``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.combine(vn.diagonal(), vn.full_matrix(epsilon=0.1))
    >>> state = optimizer.init(jnp.zeros(2))
    """
    if not learners:
        raise ValueError("`combine` needs at least one learner, such as `vn.fixed_norm()`.")
    slacks = tuple(map(slack_of, learners))
    displacements = tuple(map(displacement_of, learners))
    learners = tuple(optax.with_extra_args_support(learner) for learner in learners)

    def init(params):
        return CombineState(tuple(learner.init(params) for learner in learners))

    def update(updates, state, params, **extra_args):
        pairs = zip(learners, state.learner_states, strict=True)
        steps, states = zip(
            *(learner.update(updates, own, params, **extra_args) for learner, own in pairs),
            strict=True,
        )
        return _add(*steps), CombineState(states)

    def slack(state, comparator, norm=None, norm_state=None):
        def slacks_against(point):
            pairs = zip(slacks, state.learner_states, strict=True)
            return jnp.stack([of(own, point, norm, norm_state) for of, own in pairs])

        # One learner for the comparator, all others for the starting point: in row i, learner i.
        chosen = jnp.eye(len(learners), dtype=bool)
        against_start = slacks_against(optax.tree.zeros_like(comparator))
        candidates = jnp.where(chosen, slacks_against(comparator), against_start[None])
        return jnp.min(jnp.sum(candidates, axis=1))

    def displacement(state, params, *geometry):
        pairs = zip(displacements, state.learner_states, strict=True)
        return _add(*(of(own, params, *geometry) for of, own in pairs if of is not None))

    combined = Certified(
        _precision.in_working_precision("combine", init, update),
        slack,
        displacement=None if None in displacements else displacement,
    )
    return anchored_if_narrow(combined)


def _add(*trees):
    return jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *trees)
