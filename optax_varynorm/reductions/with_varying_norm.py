"""The layer that owns the norm and lets it grow."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import get_opaque_trace_state

from optax_varynorm import _precision
from optax_varynorm.certificates.certified import CertifiedTransformation, regret_bound_of
from optax_varynorm.norms import Geometry, Measured, NormState, VaryingNorm, dual_norm


class WithVaryingNormState(NamedTuple):
    r"""Attributes:
    norm_state: state of the norm after the gradients so far.
    skipped_rounds: number of gradients that were not finite, or too large for a sum of their
      squares to be finite, and so left everything as it was.
    clipped_rounds: number of gradients longer than the learner may see (dual norm above one by
      more than rounding); the learner received them at dual norm one.
    hidden_gradient: sum of what the learner did not receive of the gradients, by clipping or
      because a coordinate was seen for the first time.
    hidden_origin: ``w_1``, from which the cost of the hidden parts is measured.
    hidden_loss: :math:`\sum_t \langle h_t, w_t - w_1\rangle`, what those hidden parts cost.
    learner_state: state of the learner.
    announced: whether any features were, for a norm that observes them; ``None`` for others.
    """

    norm_state: NormState
    skipped_rounds: jax.Array
    clipped_rounds: jax.Array
    hidden_gradient: optax.Updates
    hidden_origin: optax.Params
    hidden_loss: jax.Array
    learner_state: optax.OptState
    announced: jax.Array | None


def with_varying_norm(
    norm: VaryingNorm, learner: optax.GradientTransformation, clip: bool = True
) -> optax.GradientTransformationExtraArgs:
    r"""Show every gradient to the norm, and the norm to the learner.

    In round ``t`` the learner's ``update`` receives ``geometry=Geometry(norm, before, after)``:
    :math:`\|\cdot\|_{t-1}`, in which the point was played, and :math:`\|\cdot\|_t`, which has seen
    :math:`g_t`. ``thm:varynorm`` supposes :math:`\|g_t\|_{t-1,\star} \le 1`. A gradient that is
    longer reaches the norm as it is, so that the same one fits the next time, and the learner at
    dual norm one. A Lipschitz bound that is too small so costs regret (a single gradient a
    thousand times too long makes a matrix norm nearly deaf to its direction), but no state
    overflows. What clipping hides from the learner is counted: with :math:`h_t` the hidden part,

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
    """
    learner_bound = regret_bound_of(learner)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        return WithVaryingNormState(
            norm_state=norm.init(params),
            skipped_rounds=jnp.zeros((), jnp.int32),
            clipped_rounds=jnp.zeros((), jnp.int32),
            hidden_gradient=optax.tree.zeros_like(params),
            hidden_origin=params,
            hidden_loss=jnp.zeros((), _precision.working_dtype(params)),
            learner_state=learner.init(params),
            announced=None if norm.observe_features is None else jnp.zeros((), bool),
        )

    def update(
        updates,
        state,
        params,
        *,
        geometry: Geometry | None = None,
        **extra_args,
    ):
        del geometry  # that of a layer outside, which this one replaces
        # Norms of features divide by their sizes before they square.
        check = _precision.is_usable if norm.observe_features is None else _precision.is_summable
        usable = check(updates)
        gradient = jax.tree.map(lambda g: jnp.where(usable, g, 0), updates)
        before = state.norm_state
        if norm.observe_features is not None:
            features, next_features = _require_features(extra_args, params)
            # The first round's features had no round before to announce them. A loop of one trip
            # or none: see `growing_inverse.grow`.
            before, _ = jax.lax.fori_loop(
                0,
                (~state.announced).astype(jnp.int32),
                lambda _, carry: (norm.observe_features(*carry), carry[1]),
                (before, features),
            )
        received, share, hides, measured = _receive(norm, before, gradient, clip)

        told = (gradient,) if norm.leader is None else (gradient, share)
        norm_state = norm.observe_gradient(before, *told)
        if norm.observe_features is not None:
            norm_state = norm.observe_features(norm_state, next_features)
        step, learner_state = learner.update(
            received,
            state.learner_state,
            params,
            **extra_args,
            geometry=Geometry(norm, before, norm_state, measured),
        )
        hidden = (state.hidden_gradient, state.hidden_loss)
        if clip:
            # A loop of one trip or none: see `growing_inverse.grow`.
            hidden, *_ = jax.lax.fori_loop(
                0,
                hides.astype(jnp.int32),
                _hide,
                (hidden, gradient, received, params, state.hidden_origin),
            )
        return step, WithVaryingNormState(
            norm_state=norm_state,
            skipped_rounds=state.skipped_rounds + (~usable).astype(jnp.int32),
            clipped_rounds=state.clipped_rounds + (share < 1).astype(jnp.int32),
            hidden_gradient=hidden[0],
            hidden_origin=state.hidden_origin,
            hidden_loss=hidden[1],
            learner_state=learner_state,
            announced=None if state.announced is None else jnp.ones_like(state.announced),
        )

    def regret_bound(state, comparator, *_):
        offset = optax.tree.sub(comparator, state.hidden_origin)
        hidden = state.hidden_loss - _precision.inner(state.hidden_gradient, offset)
        return learner_bound(state.learner_state, comparator, norm, state.norm_state) + hidden

    layer = _precision.in_working_precision("with_varying_norm", init, update)
    return CertifiedTransformation(layer, regret_bound)


def _require_features(extra_args, params):
    """Both as trees like the parameters, in the same dtype; zeros where they are no numbers."""
    features, next_features = map(extra_args.get, ("features", "next_features"))
    if features is None or next_features is None:
        raise ValueError(
            "This norm learns from the features of a linear model: call `update(gradient, state, "
            "params, features=..., next_features=...)` with this example's and the next one's "
            "(zeros after the last), or let `vn.predict_then_update` do it."
        )
    shapes = jax.tree.map(jnp.shape, params)
    for tree in (features, next_features):
        if jax.tree.map(jnp.shape, tree) != shapes:
            raise ValueError(
                f"Features must have the shape of the parameters, {shapes}, not "
                f"{jax.tree.map(jnp.shape, tree)}: one weight a feature."
            )
    dtype = _precision.working_dtype(params)
    return tuple(_precision.finite(_precision.cast(t, dtype)) for t in (features, next_features))


def _receive(norm, norm_state, gradient, clip):
    """What the learner receives of a gradient: its share of it, and whether that is not all."""
    dtype = _precision.working_dtype(gradient)
    if not clip:
        return gradient, jnp.ones((), dtype), False, None
    known, is_new = gradient, jnp.zeros((), bool)
    if norm.known_part is not None:
        known = norm.known_part(norm_state, gradient)
        is_new = functools.reduce(
            jnp.logical_or,
            jax.tree.leaves(jax.tree.map(lambda g, k: jnp.any(g != k), gradient, known)),
            is_new,
        )
    length = dual_norm(norm, norm_state, known)
    # A length that overflows is no number, and too long as well.
    too_long = ~(length <= 1 + _precision.rounding(dtype))
    finite = jnp.isfinite(length)
    share = jnp.where(finite, 1 / jnp.where(too_long & finite, length, 1), 0)
    received = optax.tree.scale(share, known)
    squared_length = jnp.where(too_long, finite.astype(dtype), length**2)
    measured = Measured(received, squared_length, get_opaque_trace_state())
    return received, share, too_long | is_new, measured


def _hide(_, carry):
    (hidden_gradient, hidden_loss), gradient, received, params, origin = carry
    part = optax.tree.sub(gradient, received)
    hidden = (
        optax.tree.add(hidden_gradient, part),
        hidden_loss + _precision.inner(part, optax.tree.sub(params, origin)),
    )
    return hidden, gradient, received, params, origin
