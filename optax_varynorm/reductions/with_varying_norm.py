"""The layer that owns the norm and lets it grow."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import get_opaque_trace_state

from optax_varynorm import _precision
from optax_varynorm.norms import Geometry, Measured, NormState, VaryingNorm, dual_norm

# A gradient is skipped when this many of its like would overflow a sum of squares.
ROUNDS_THAT_MUST_FIT = 2.0**32


class WithVaryingNormState(NamedTuple):
    """Attributes:
    norm_state: state of the norm after the gradients so far.
    skipped_rounds: number of gradients that were not finite, or too large for a sum of their
      squares to be finite, and so left everything as it was.
    clipped_rounds: number of gradients longer than the learner may see (dual norm above one by
      more than rounding); the learner received them at dual norm one.
    learner_state: state of the learner.
    """

    norm_state: NormState
    skipped_rounds: jax.Array
    clipped_rounds: jax.Array
    learner_state: optax.OptState


def with_varying_norm(
    norm: VaryingNorm, learner: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    r"""Show every gradient to the norm, and the norm to the learner.

    In round ``t`` the learner's ``update`` receives ``geometry=Geometry(norm, before, after)``:
    :math:`\|\cdot\|_{t-1}`, in which the point was played, and :math:`\|\cdot\|_t`, which has seen
    :math:`g_t`. ``thm:varynorm`` supposes :math:`\|g_t\|_{t-1,\star} \le 1`. A gradient that is
    longer reaches the norm as it is, so that the same one fits the next time, and the learner at
    dual norm one. A Lipschitz bound that is too small so costs regret (a single gradient a
    thousand times too long makes a matrix norm nearly deaf to its direction), but no state ever
    overflows.

    A gradient that is not finite counts as zero, which changes nothing in any layer but rounding.
    """
    learner = optax.with_extra_args_support(learner)

    def init(params):
        return WithVaryingNormState(
            norm_state=norm.init(params),
            skipped_rounds=jnp.zeros((), jnp.int32),
            clipped_rounds=jnp.zeros((), jnp.int32),
            learner_state=learner.init(params),
        )

    def update(updates, state, params, *, geometry: Geometry | None = None, **extra_args):
        del geometry  # that of a layer outside, which this one replaces
        dtype = _precision.working_dtype(params)
        largest = float(jnp.finfo(dtype).max) / ROUNDS_THAT_MUST_FIT
        usable = _precision.inner(updates, updates) <= largest
        gradient = jax.tree.map(lambda g: jnp.where(usable, g, 0), updates)
        known = gradient if norm.known_part is None else norm.known_part(state.norm_state, gradient)

        length = dual_norm(norm, state.norm_state, known)
        too_long = length > 1 + _precision.rounding(dtype)
        share = 1 / jnp.where(too_long, length, 1)
        clipped = optax.tree.scale(share, known)

        told = (gradient,) if norm.leader is None else (gradient, share)
        norm_state = norm.observe_gradient(state.norm_state, *told)
        measured = Measured(clipped, (share * length) ** 2, get_opaque_trace_state())
        step, learner_state = learner.update(
            clipped,
            state.learner_state,
            params,
            **extra_args,
            geometry=Geometry(norm, state.norm_state, norm_state, measured),
        )
        return step, WithVaryingNormState(
            norm_state=norm_state,
            skipped_rounds=state.skipped_rounds + (~usable).astype(jnp.int32),
            clipped_rounds=state.clipped_rounds + too_long.astype(jnp.int32),
            learner_state=learner_state,
        )

    return _precision.in_working_precision("with_varying_norm", init, update)
