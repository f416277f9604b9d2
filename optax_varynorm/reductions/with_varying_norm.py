"""The layer that owns the norm and lets it grow."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _precision
from optax_varynorm._in_place import rarely
from optax_varynorm.learners import Certified, displacement_of, slack_of
from optax_varynorm.norms import Geometry, NormState, VaryingNorm, cut_to_one
from optax_varynorm.reductions._features import require_features


class WithVaryingNormState(NamedTuple):
    r"""Attributes:
    norm_state: state of the norm after the gradients so far.
    skipped_rounds: number of gradients that were not finite, or too large for a sum of their
      squares to be finite, and so left everything as it was.
    clipped_rounds: number of gradients longer than the learner may see (dual norm above one by
      more than rounding); the learner received them at dual norm one.
    learner_state: state of the learner.
    announced: one as soon as any features were, for a norm that observes them; else ``None``.
    """

    norm_state: NormState
    skipped_rounds: jax.Array
    clipped_rounds: jax.Array
    learner_state: optax.OptState
    announced: jax.Array | None


def with_varying_norm(
    norm: VaryingNorm, learner: optax.GradientTransformation, clip: bool = True
) -> optax.GradientTransformationExtraArgs:
    r"""Show every gradient to the norm, and the norm to the learner.

    In round ``t`` the learner's ``update`` receives a ``Geometry``, the norm with
    :math:`\|\cdot\|_{t-1}`, in which the point was played, and :math:`\|\cdot\|_t`, which has seen
    :math:`g_t`. ``thm:varynorm`` supposes :math:`\|g_t\|_{t-1,\star} \le 1`. A gradient that is
    longer reaches the norm as it is, so that the same one fits the next time, and the learner at
    dual norm one. A Lipschitz bound that is too small so costs regret (a single gradient a
    thousand times too long makes a matrix norm nearly deaf to its direction), but no state
    overflows. The part of a gradient in coordinates that the norm meets for the first time does not
    reach the learner either. With :math:`h_t` what did not,

    .. math:: R_T(u) = R_T^{\text{learner}}(u) + \sum_t \langle h_t, w_t - u\rangle.

    A gradient that is not finite counts as zero, which changes nothing in any layer but rounding.

    A norm of a linear model's features takes them as extra arguments of ``update``: ``features``,
    those of round ``t``, and ``next_features``, those of round ``t + 1``, which are the
    ``features`` of the next call. ``vn.predict_then_update`` needs no look into the future.

    Args:
      norm: the norms.
      learner: any Optax optimizer, such as ``scale_by_coin_betting(ftrl_step())``.
      clip: ``False`` hands gradients on as they are, to a learner that has norms of its own and
        needs this one to project only.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.scale_by_coin_betting(vn.ftrl_step())
    >>> optimizer = vn.with_varying_norm(vn.diagonal_norm(None), learner)
    >>> state = optimizer.init({"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    """
    learner_slack, learner_displacement = slack_of(learner), displacement_of(learner)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        return WithVaryingNormState(
            norm_state=norm.init(params),
            skipped_rounds=jnp.zeros((), jnp.int32),
            clipped_rounds=jnp.zeros((), jnp.int32),
            learner_state=learner.init(params),
            announced=None if norm.announce is None else jnp.zeros((), jnp.int32),
        )

    def update(updates, state, params, *, geometry: Geometry | None = None, **extra_args):
        del geometry  # that of a layer outside, which this one replaces
        before, next_features = state.norm_state, None
        if norm.announce is not None:
            features, next_features = map(_precision.finite, require_features(extra_args, params))
            # The first round's features had no round before to announce them.
            before = rarely(state.announced == 0, norm.announce, before, features)
        reading = norm.measure(before, updates)
        received, squared_dual_norm = reading.known, reading.squared_dual_norm
        clipped = jnp.zeros((), bool)
        if clip:
            share, squared_dual_norm = cut_to_one(squared_dual_norm)
            received = jax.tree.map(lambda g: share * g, received)
            reading, clipped = reading._replace(share=share), share < 1
        after = norm.grow(before, reading)
        if norm.announce is not None:
            after = norm.announce(after, next_features)
        step, learner_state = learner.update(
            received,
            state.learner_state,
            params,
            **extra_args,
            geometry=Geometry(norm, before, after, received, squared_dual_norm),
        )
        return step, WithVaryingNormState(
            norm_state=after,
            skipped_rounds=state.skipped_rounds + (~reading.usable).astype(jnp.int32),
            clipped_rounds=state.clipped_rounds + clipped.astype(jnp.int32),
            learner_state=learner_state,
            announced=None if state.announced is None else jnp.ones_like(state.announced),
        )

    def slack(state, comparator, *_):
        return learner_slack(state.learner_state, comparator, norm, state.norm_state)

    def displacement(state, params, *_):
        assert learner_displacement is not None
        return learner_displacement(state.learner_state, params, norm, state.norm_state)

    return Certified(
        _precision.in_working_precision("with_varying_norm", init, update),
        slack,
        displacement=learner_displacement and displacement,
    )
