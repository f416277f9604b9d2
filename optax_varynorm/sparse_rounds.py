"""Algorithm 3 for rows of few features that are not zero: O(nonzeros) a round."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.custom_batching import custom_vmap

from optax_varynorm import _precision
from optax_varynorm.certificates.compensated import CompensatedSum
from optax_varynorm.ftrl import FTRLState, ftrl_step
from optax_varynorm.learners import Certified, displacement, telling
from optax_varynorm.norms import Geometry, NormState, VaryingNorm, cut_to_one
from optax_varynorm.reductions.per_coordinate import coordinate_learner_of
from optax_varynorm.two_calls import OnlineLearnerState, predict_then_update


class SparseLearner(NamedTuple):
    """Attributes:
    init: ``state = init(size, dtype)``, for so many features, all weights zero.
    predict: ``weights, visit = predict(state, indices, values)``, the weights of the features of
      this example.
    update: ``state = update(state, visit, gradient)``, the gradient of its loss by those weights.
    pack: ``state = pack(dense)``, from a state of ``predict_then_update`` that started at zero.
    unpack: its inverse, for a look at all weights, which are its ``played_point``.
    """

    init: Callable
    predict: Callable
    update: Callable
    pack: Callable
    unpack: Callable


class SparseLearnerState(NamedTuple):
    """Attributes:
    table: a row for each feature, and one for none: the numbers of a ``FeatureState``, counts too.
    shared: numbers of the bettor that never change, and are the same for all features.
    """

    table: jax.Array
    shared: list[jax.Array]


class Visit(NamedTuple):
    """Attributes:
    indices: which features.
    learners: the ``FeatureState`` of each, which knows the value in this example.
    """

    indices: jax.Array
    learners: Any


def sparse_predict_then_update(optimizer: optax.GradientTransformation) -> SparseLearner:
    r"""``alg:diagscale`` as ``predict_then_update``, for rows of few features that are not zero.

    Where a feature is zero so is the gradient, and that leaves a feature's learner as it is: only
    the others are looked up, learn, and are put back. The predictions are those of
    ``predict_then_update``, to rounding.

    An example is ``indices``, which must differ from each other, and ``values``. Examples are
    filled up to one length by the index ``size``, any number of times, and zeros. Indices above
    ``size`` are unchecked and corrupt the state. A prediction that ``update`` does not learn from
    is forgotten. ``vmap`` runs several models at once, on a CPU fastest by ``vmap`` of
    ``one_kernel`` of a scan. Counts of a feature end at 16,777,216 in float32.

    Args:
      optimizer: ``diagonal_scale_invariant(...)``, or ``scale_invariant(...)`` of more than 512
        features. A ``scale_learner`` must be elementwise, and a coin of zero must leave it as it
        is: so are the bettors of this package.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> learner = vn.sparse_predict_then_update(vn.diagonal_scale_invariant())
    >>> state = learner.init(1000)
    >>> indices, values = jnp.array([3, 998, 1000]), jnp.array([2.0, -1.0, 0.0])
    >>> for _ in range(3):
    ...     weights, visit = learner.predict(state, indices, values)
    ...     state = learner.update(state, visit, -values)
    >>> bool(weights[0] > 0 > weights[1])
    True
    """

    def learner_of(size, dtype):
        parts = coordinate_learner_of(optimizer, size)
        if parts is None:
            raise ValueError(
                "Sparse rounds are those of `diagonal_scale_invariant(...)`, and of "
                "`scale_invariant(...)` with more than 512 features. For this optimizer with "
                f"{size} features use `predict_then_update`: a round may move every weight."
            )
        if dtype not in (jnp.float32, jnp.float64):
            raise ValueError(
                f"Sparse rounds keep weights in float32 or float64, not {jnp.dtype(dtype)}: call "
                "`init(size)`, and cast the weights of a prediction instead."
            )
        return FeatureLearner(parts.norm, telling(parts.scale_learner), jnp.dtype(dtype))

    def learner_in(state):
        return learner_of(len(state.table) - 1, state.table.dtype)

    def init(size, dtype=jnp.float32):
        learner = learner_of(size, dtype)
        row, shared = learner.to_row(learner.start())
        return SparseLearnerState(jnp.tile(row, (size + 1, 1)), shared)

    def predict(state, indices, values):
        # Narrower integers could not count the rows of several models.
        indices, values = jnp.asarray(indices, jnp.int32), jnp.asarray(values, state.table.dtype)
        if indices.shape != values.shape or indices.ndim != 1 or not indices.size:
            raise ValueError(
                "An example is as many indices as values, at least one of each, but these have the "
                f"shapes {indices.shape} and {values.shape}. One without any: `[size]` and `[0.0]`."
            )
        play = _in_a_long_table(functools.partial(_look_up, learner_in(state).predict))
        shared = [jnp.broadcast_to(number, indices.shape) for number in state.shared]
        weights, learners = play(state.table, indices, shared, values)
        return weights, Visit(indices, learners)

    def update(state, visit, gradient):
        learn = _in_a_long_table(functools.partial(_put_back, learner_in(state).update))
        gradient = jnp.asarray(gradient, state.table.dtype)
        return state._replace(table=learn(state.table, *visit, gradient))

    def pack(dense):
        learner = learner_of(len(dense.played_point), dense.played_point.dtype)
        # What waits is learned first: zeros move nothing else.
        zeros = jnp.zeros_like(dense.played_point)
        settled = predict_then_update(optimizer).predict(dense, zeros)[1]
        rows, shared = jax.vmap(learner.to_row)(from_dense(settled))
        nobody = learner.to_row(learner.start())[0]
        table = jnp.concatenate([rows, nobody[None]])
        return SparseLearnerState(table, [number[0] for number in shared])

    def unpack(state):
        learner = learner_in(state)
        known = jax.vmap(learner.from_row, in_axes=(0, None))(state.table[:-1], state.shared)
        fresh = predict_then_update(optimizer).init(jnp.zeros_like(state.table[:-1, 0]))
        weights, known = jax.vmap(learner.play)(known)
        return to_dense(fresh, known, weights)

    return SparseLearner(init, predict, update, pack, unpack)


class FeatureState(NamedTuple):
    """One feature's learner between two rounds; fields are named as in the dense layers' states."""

    norm_state: NormState
    skipped_rounds: jax.Array
    clipped_rounds: jax.Array
    charged: CompensatedSum
    direction_state: FTRLState
    scale_state: optax.OptState


# `from_dense` and `to_dense` are all that knows how the layers of a dense learner keep the same.


def from_dense(dense: OnlineLearnerState) -> FeatureState:
    (outer,) = dense.optimizer_state.anchored_learner_state.part_states
    inner = outer.learner_state
    return FeatureState(
        norm_state=outer.norm_state,
        skipped_rounds=outer.skipped_rounds,
        clipped_rounds=outer.clipped_rounds,
        charged=inner.charged,
        direction_state=inner.direction_state,
        scale_state=inner.scale_state,
    )


def to_dense(fresh: OnlineLearnerState, known: FeatureState, weights) -> OnlineLearnerState:
    """A state that never learned, with what is known, at these weights."""
    parts = fresh.optimizer_state.anchored_learner_state
    (outer,) = parts.part_states
    inner = outer.learner_state._replace(
        charged=known.charged,
        direction_state=known.direction_state,
        scale_state=known.scale_state,
    )
    outer = outer._replace(
        norm_state=known.norm_state,
        skipped_rounds=known.skipped_rounds,
        clipped_rounds=known.clipped_rounds,
        learner_state=inner,
    )
    anchored = fresh.optimizer_state._replace(
        left_from=weights, anchored_learner_state=parts._replace(part_states=(outer,))
    )
    return fresh._replace(played_point=weights, optimizer_state=anchored)


class FeatureLearner(NamedTuple):
    """Algorithm 3 for one feature, a number each time.

    Attributes:
      norm: ``feature_size_norm(...)``.
      bettor: the scale learner, which tells its displacement.
      dtype: of all numbers.
    """

    norm: VaryingNorm
    bettor: Certified
    dtype: jnp.dtype

    def start(self) -> FeatureState:
        zero, none = jnp.zeros((), self.dtype), jnp.zeros((), jnp.int32)
        return FeatureState(
            norm_state=self.norm.init(zero),
            skipped_rounds=none,
            clipped_rounds=none,
            charged=CompensatedSum.zeros_like(zero),
            direction_state=ftrl_step().init(zero),
            scale_state=self.bettor.init(zero),
        )

    def to_row(self, state: FeatureState) -> tuple[jax.Array, list[jax.Array]]:
        """The numbers of a feature, and those that are shared."""
        leaves = [*zip(jax.tree.leaves(state), self._is_shared(), strict=True)]
        numbers = [leaf.astype(self.dtype) for leaf, is_shared in leaves if not is_shared]
        return jnp.stack(numbers), [leaf for leaf, is_shared in leaves if is_shared]

    def from_row(self, row, shared) -> FeatureState:
        leaves, structure = jax.tree.flatten(jax.eval_shape(self.start))
        sources = {True: iter(shared), False: iter(row)}
        numbers = [next(sources[is_shared]) for is_shared in self._is_shared()]
        return jax.tree.unflatten(
            structure, [x.astype(leaf.dtype) for x, leaf in zip(numbers, leaves, strict=True)]
        )

    def _is_shared(self) -> list[bool]:
        """What bettors of two features would have one of, but for counts."""
        pair = jax.ShapeDtypeStruct((2,), self.dtype)
        of_bettor = [
            not leaf.shape and leaf.dtype == self.dtype
            for leaf in jax.tree.leaves(jax.eval_shape(self.bettor.init, pair))
        ]
        others = len(jax.tree.leaves(jax.eval_shape(self.start))) - len(of_bettor)
        return [False] * others + of_bettor

    def predict(self, row, shared, value):
        """``w_t``, and the state that has seen the value."""
        state = self.from_row(row, shared)
        assert self.norm.announce is not None
        norm_state = self.norm.announce(state.norm_state, _precision.finite(value))
        return self.play(state._replace(norm_state=norm_state))

    def play(self, state: FeatureState) -> tuple[jax.Array, FeatureState]:
        """The weight in the norm that has seen the next value: ``eqn:ftrl``, times the scale."""
        geometry = Geometry(self.norm, state.norm_state, state.norm_state)
        direction_state = self._follow(jnp.zeros((), self.dtype), state.direction_state, geometry)
        state = state._replace(direction_state=direction_state)
        assert direction_state.direction is not None
        return direction_state.direction * self.scale(state), state

    def scale(self, state: FeatureState) -> jax.Array:
        return displacement(self.bettor, state.scale_state, state.direction_state.direction)

    def update(self, state, gradient):
        """The row that has learned from the gradient."""
        before = state.norm_state
        reading = self.norm.measure(before, gradient)
        # thm:varynorm supposes dual norm one at most.
        share, squared_dual_norm = cut_to_one(reading.squared_dual_norm)
        received = share * reading.known
        after = self.norm.grow(before, reading._replace(share=share))
        geometry = Geometry(self.norm, before, after, received, squared_dual_norm)
        coin, scale = received * state.direction_state.direction, self.scale(state)
        _, scale_state = self.bettor.update(coin, state.scale_state, scale)
        learned = FeatureState(
            norm_state=after,
            skipped_rounds=state.skipped_rounds + (~reading.usable).astype(jnp.int32),
            clipped_rounds=state.clipped_rounds + (share < 1).astype(jnp.int32),
            charged=state.charged.plus(coin * scale),
            direction_state=self._follow(received, state.direction_state, geometry),
            scale_state=scale_state,
        )
        return self.to_row(learned)[0]

    def _follow(self, gradient, state: FTRLState, geometry: Geometry) -> FTRLState:
        return ftrl_step().update(gradient, state, state.direction, geometry=geometry)[1]


def _look_up(predict, table, indices, shared, values):
    rows = table.at[indices].get(mode="promise_in_bounds")
    return jax.vmap(predict)(rows, shared, values)


def _put_back(update, table, indices, *arguments):
    rows = jax.vmap(update)(*arguments)
    if jax.default_backend() != "cpu":
        return table.at[indices].set(rows, mode="promise_in_bounds")

    # XLA's CPU backend has no scatter in a kernel of `one_kernel`.
    def put(k, table):
        return jax.lax.dynamic_update_index_in_dim(
            table, rows[k], indices[k], 0, allow_negative_indices=False
        )

    return jax.lax.fori_loop(np.int32(0), np.int32(len(indices)), put, table)


def _in_a_long_table(function: Callable) -> Callable:
    """A function of a table, indices of its rows, and arrays of something for each of those.

    Under ``vmap`` the tables are one long table, and the rest one long axis: XLA's CPU backend does
    not vectorize short loops inside of others, and would make scatters of the rows put back.
    """
    apply = custom_vmap(function)

    @apply.def_vmap
    def apply_to_all(count, is_batched, *arguments):
        arguments = jax.tree.map(
            lambda x, batched: x if batched else jnp.broadcast_to(x, (count, *x.shape)),
            arguments,
            tuple(is_batched),
        )
        first = len(arguments[0][0]) * jnp.arange(count, dtype=arguments[1].dtype)
        table, indices, *rest = arguments
        long = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), (table, indices + first[:, None], *rest)
        )
        result = jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), apply(*long))
        return result, jax.tree.map(lambda _: True, result)

    return apply
