"""The layer that owns the norm and lets it grow."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import get_opaque_trace_state
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision
from optax_varynorm._in_place import after, in_memory, rarely, rarely_for_all
from optax_varynorm._short_leaves import are_all_short, map_elementwise
from optax_varynorm.certificates.certified import (
    CertifiedTransformation,
    Follower,
    regret_bound_of,
)
from optax_varynorm.norms import (
    Geometry,
    Measured,
    NormState,
    VaryingNorm,
    dual_norm,
    sums_with_gradient,
)
from optax_varynorm.reductions._features import require_features


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

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.scale_by_coin_betting(vn.ftrl_step())
    >>> optimizer = vn.with_varying_norm(vn.diagonal_norm(None), learner)
    >>> state = optimizer.init({"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)})
    """
    learner_bound = regret_bound_of(learner)
    # The norm knows the leader of what it handed inward, clipped, or finds it at no cost.
    knows_leader = (
        norm.leader is not None or norm.inverse_weights is not None or norm.has_cheap_leader
    )
    follower: Follower | None = None
    if clip and knows_leader:
        follower = getattr(learner, "follower", None)
    learner = optax.with_extra_args_support(learner)

    def init(params):
        return WithVaryingNormState(
            norm_state=norm.init(params),
            skipped_rounds=jnp.zeros((), jnp.int32),
            clipped_rounds=jnp.zeros((), jnp.int32),
            hidden_gradient=optax.tree.zeros_like(params),
            hidden_origin=params,
            hidden_loss=jnp.zeros((), _precision.working_dtype(params)),
            learner_state=(learner if follower is None else follower).init(params),
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
        before = state.norm_state
        if norm.observe_features is not None:
            features, next_features = map(_precision.finite, require_features(extra_args, params))
            # The first round's features had no round before to announce them.
            before = rarely(~state.announced, norm.observe_features, before, features)
        if norm.inverse_weights is not None and not are_all_short(updates):
            updates = in_memory(state.skipped_rounds < 0, updates)
        followed = None if follower is None else follower.gradient_sum(state.learner_state)
        view = _look_at(norm, before, updates, clip, followed)
        hidden = Hidden(state.hidden_gradient, state.hidden_loss, state.clipped_rounds)
        if clip:
            hidden = rarely_for_all(
                lambda hidden, is_partial, *rest: is_partial,
                functools.partial(_hide, norm),
                hidden,
                view.is_partial,
                (() if norm.known_part is None else before, updates, view.share),
                (params, state.hidden_origin),
            )
        gradient = map_elementwise(lambda g: jnp.where(view.is_usable, g, 0), updates)
        # All that is read of the old state and parameters for sums and what is hidden was read.
        never = hidden.clipped_rounds < 0
        if norm.inverse_weights is not None and view.product_with_leader is not None:
            never = never | jnp.isnan(view.product_with_leader)
        share = after(never, view.share)
        if norm.inverse_weights is not None:
            gradient = after(never, gradient)
        received = map_elementwise(lambda g: share * g, _known_part(norm, before, gradient))
        measured = Measured(
            received,
            view.squared_dual_norm,
            view.product_with_leader,
            get_opaque_trace_state(),
        )

        told = (gradient,) if norm.leader is None else (gradient, share)
        norm_state = norm.observe_gradient(before, *told)
        if norm.observe_features is not None:
            norm_state = norm.observe_features(norm_state, next_features)
        step, learner_state = learner.update(
            received,
            state.learner_state,
            params,
            **extra_args,
            geometry=Geometry(norm, before, norm_state, measured if clip else None),
        )
        return step, WithVaryingNormState(
            norm_state=norm_state,
            skipped_rounds=state.skipped_rounds + (~view.is_usable).astype(jnp.int32),
            clipped_rounds=hidden.clipped_rounds,
            hidden_gradient=hidden.gradient,
            hidden_origin=state.hidden_origin,
            hidden_loss=hidden.loss,
            learner_state=learner_state,
            announced=None if state.announced is None else jnp.ones_like(state.announced),
        )

    def regret_bound(state, comparator, *_):
        offset = optax.tree.sub(comparator, state.hidden_origin)
        hidden = state.hidden_loss - _precision.inner(state.hidden_gradient, offset)
        return learner_bound(state.learner_state, comparator, norm, state.norm_state) + hidden

    layer = _precision.in_working_precision("with_varying_norm", init, update)
    return CertifiedTransformation(layer, regret_bound)


class View(NamedTuple):
    """What the learner may see of a gradient.

    Attributes:
      is_usable: whether it sees anything; a gradient that is not counts as zero.
      share: by how much the known part of the gradient is shortened.
      is_partial: whether that is less than the gradient.
      squared_dual_norm: of what the learner sees.
      product_with_leader: of what the learner sees; see ``norms.Measured``.
    """

    is_usable: jax.Array
    share: jax.Array
    is_partial: jax.Array
    squared_dual_norm: jax.Array
    product_with_leader: jax.Array | None


def _look_at(norm, norm_state, updates, clip, followed) -> View:
    """A norm with ``inverse_weights`` is given the gradient as it came, and reads it once.

    Zeros instead of what is not finite would be one more array to write before the first sum.
    """
    dtype = _precision.working_dtype(updates)
    gradient, product = updates, None
    if clip and norm.inverse_weights is not None:
        square, squared_length, product = sums_with_gradient(
            norm, norm_state, updates, updates if followed is None else followed
        )
        is_usable = _precision.is_usable(square)
        length = jnp.where(is_usable, _precision.root(squared_length), 0)
    else:
        # Norms of features divide by their sizes before they square.
        if norm.observe_features is None:
            is_usable = _precision.is_usable(_precision.inner(updates, updates))
        else:
            is_usable = _precision.is_summable(updates)
        if not clip:
            one = jnp.ones((), dtype)
            return View(is_usable, one, jnp.zeros((), bool), one, None)
        gradient = map_elementwise(lambda g: jnp.where(is_usable, g, 0), updates)
        length = dual_norm(norm, norm_state, _known_part(norm, norm_state, gradient))
    # A length that overflows is no number, and too long as well.
    too_long = ~(length <= 1 + _precision.rounding(dtype))
    finite = jnp.isfinite(length)
    share = jnp.where(finite, 1 / jnp.where(too_long & finite, length, 1), 0)
    if followed is None:
        product = None
    elif product is None:
        if norm.leader is None:
            leader = norm.to_primal(norm_state, followed)
        else:
            # The same product that a matrix norm needs to carry its leader on.
            leader = ravel_pytree(gradient)[1](norm.leader(norm_state))
        product = share * _precision.inner(gradient, leader)
    else:
        product = jnp.where(is_usable, share * product, 0)
    return View(
        is_usable=is_usable,
        share=share,
        is_partial=is_usable & (too_long | _has_unknown_part(norm, norm_state, gradient)),
        squared_dual_norm=jnp.where(too_long, finite.astype(dtype), length**2),
        product_with_leader=product,
    )


def _known_part(norm, norm_state, gradient):
    return gradient if norm.known_part is None else norm.known_part(norm_state, gradient)


def _has_unknown_part(norm, norm_state, gradient) -> jax.Array:
    nothing = jnp.zeros((), bool)
    if norm.known_part is None:
        return nothing

    def compare(_, norm_state, gradient):
        known = norm.known_part(norm_state, gradient)
        differ = jax.tree.map(lambda g, k: jnp.any(g != k), gradient, known)
        return functools.reduce(jnp.logical_or, jax.tree.leaves(differ), nothing)

    if norm.knows_all is None:
        return compare(nothing, norm_state, gradient)
    return rarely(~norm.knows_all(norm_state), compare, nothing, norm_state, gradient)


class Hidden(NamedTuple):
    """What clipping has hidden so far; see ``WithVaryingNormState``."""

    gradient: optax.Updates
    loss: jax.Array
    clipped_rounds: jax.Array


def _hide(norm, hidden, is_partial, seen, played) -> Hidden:
    (norm_state, gradient, share), (params, origin) = seen, played
    known = _known_part(norm, norm_state, gradient)
    part = jax.tree.map(lambda g, k: jnp.where(is_partial, g - share * k, 0), gradient, known)
    return Hidden(
        gradient=optax.tree.add(hidden.gradient, part),
        loss=hidden.loss + _precision.inner(part, optax.tree.sub(params, origin)),
        clipped_rounds=hidden.clipped_rounds + (is_partial & (share < 1)).astype(jnp.int32),
    )
