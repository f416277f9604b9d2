"""Rounds of a linear model that touch the features that are not zero, and no others."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _remembered
from optax_varynorm._reading import reads
from optax_varynorm._remembered import Use
from optax_varynorm._rows import change_rarely, one_long_vmap, put_columns, take_columns
from optax_varynorm.reductions.per_coordinate import coordinate_learner_of
from optax_varynorm.two_calls import OnlineLearnerState, predict_then_update


class SparseLearner(NamedTuple):
    """Attributes:
    init: ``state = init(size, dtype)``, for so many features, all weights zero.
    predict: ``weights, visit = predict(state, indices, values)``, the weights of the features of
      this example.
    update: ``state = update(state, visit, gradient)``, the gradient of its loss by those weights.
    pack: ``state = pack(dense)``, from a state of ``predict_then_update`` that started at zero.
    unpack: its inverse, for a look at all weights: ``predict_then_update(optimizer).predict`` of
      zeros shows them.
    """

    init: Callable
    predict: Callable
    update: Callable
    pack: Callable
    unpack: Callable


class SparseLearnerState(NamedTuple):
    """Attributes:
    rows: one for each feature, and one for none: the bits of what changes in its learner's state,
      first what every round reads and writes.
    shared: what never changes, and is the same for all.
    """

    rows: jax.Array
    shared: list[jax.Array]


class Visit(NamedTuple):
    """Attributes:
    indices: which features.
    learners: the states of their learners, after the prediction; of tallies, what to add.
    """

    indices: jax.Array
    learners: OnlineLearnerState


def sparse_predict_then_update(optimizer: optax.GradientTransformation) -> SparseLearner:
    r"""``predict_then_update`` for rows of few features that are not zero: O(nonzeros) a round.

    For optimizers that run one learner a coordinate (``alg:diagscale``). Where a feature is zero so
    is the gradient, and that leaves every learner of this package as it is. So a coordinate may
    wait: what it learned last becomes its next point when its feature is next not zero. The
    predictions are those of ``predict_then_update``, to rounding.

    An example is ``indices``, which must differ from each other, and ``values``. Examples are
    filled up to one length by the index ``size``, any number of times, and zeros. Indices above it
    are not looked for, and do harm. A prediction that ``update`` does not learn from is forgotten.
    ``vmap`` runs several models at once, fastest by ``vmap(one_kernel(...))`` of a scan.

    Args:
      optimizer: ``diagonal_scale_invariant``, ``scale_invariant`` of more than 512 features, or
        ``per_coordinate`` of any learner that a zero gradient leaves as it is.

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

    def learner_of(size):
        coordinate_learner = coordinate_learner_of(optimizer, size)
        if coordinate_learner is None:
            raise ValueError(
                f"With {size} features this optimizer is more than one learner a coordinate, so "
                "every round moves every weight. Use `predict_then_update`, or an optimizer such "
                "as `diagonal_scale_invariant()` or `per_coordinate(...)`."
            )
        return predict_then_update(coordinate_learner)

    @functools.cache
    def learner_and_layout(size, bits):
        learner = learner_of(size)
        return learner, _layout(learner, _dtype_of(bits))

    def init(size, dtype=jnp.float32):
        learner = learner_of(size)
        return pack(jax.vmap(learner.init)(jnp.zeros(size, dtype)))

    def pack(dense):
        points = dense.played_point
        if points.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(
                f"Sparse rounds keep weights in float32 or float64, not {points.dtype}: call "
                "`init(size)`, and cast the weights of a prediction instead."
            )
        learner, layout = learner_and_layout(len(points), _bits_of(points.dtype))
        nobody = jax.vmap(learner.init)(jnp.zeros_like(points[:1]))
        rows = jnp.concatenate([layout.to_rows(dense), layout.to_rows(nobody)])
        return SparseLearnerState(rows, layout.first_of_shared(dense))

    def unpack(state):
        size = len(state.rows) - 1
        _, layout = learner_and_layout(size, state.rows.dtype)
        return layout.from_rows(state.rows[:size], state.shared)

    def predict(state, indices, values):
        learner, layout = learner_and_layout(len(state.rows) - 1, state.rows.dtype)

        def predict_one(columns, shared, value):
            return learner.predict(layout.as_told(columns, shared), value)

        # Narrower integers could not count the rows of several models.
        indices = jnp.asarray(indices, jnp.int32)
        values = jnp.asarray(values, _dtype_of(state.rows.dtype))
        if indices.shape != values.shape or indices.ndim != 1 or not indices.size:
            raise ValueError(
                "An example is as many indices as values, at least one of each, but these have the "
                f"shapes {indices.shape} and {values.shape}. One without any: `[size]` and `[0.0]`."
            )
        columns = take_columns(state.rows, indices, layout.width(Use.READ))
        shared = [
            jnp.broadcast_to(leaf, (len(indices), *leaf.shape))
            for leaf, is_read in zip(state.shared, layout.shared_is_read, strict=True)
            if is_read
        ]
        weights, learners = one_long_vmap(predict_one)(columns, shared, values)
        return weights, Visit(indices, learners)

    def update(state, visit, gradient):
        _, layout = learner_and_layout(len(state.rows) - 1, state.rows.dtype)
        # Its bits are kept, so it has to be a number like the others.
        gradient = jnp.asarray(gradient, visit.learners.pending_gradient.dtype)
        learners = visit.learners._replace(pending_gradient=gradient)
        columns, tallies = (layout.to_columns(learners, use) for use in (Use.READ, Use.TALLY))
        rows = put_columns(state.rows, visit.indices, columns)
        if tallies:
            # Zero is zero bits, but for its sign.
            is_due = functools.reduce(jnp.bitwise_or, tallies) != 0
            rows = change_rarely(
                rows, visit.indices, len(columns), is_due, layout.add_bits, *tallies
            )
        return state._replace(rows=rows)

    return SparseLearner(init, predict, update, pack, unpack)


class Layout(NamedTuple):
    """How the state of one coordinate's learner lies in a row.

    Attributes:
      structure: of the state.
      leaves: shapes and dtypes of its leaves.
      uses: what they are used for.
      shared_is_read: whether anything depends on them in a round, of the shared ones.
    """

    structure: Any
    leaves: list[jax.ShapeDtypeStruct]
    uses: list[Use]
    shared_is_read: list[bool]

    def width(self, use: Use) -> int:
        return sum(math.prod(leaf.shape) for leaf in self._of(use))

    def first_of_shared(self, learners) -> list[jax.Array]:
        leaves = zip(jax.tree.leaves(learners), self.uses, strict=True)
        return [leaf[0] for leaf, use in leaves if use == Use.SHARED]

    def to_columns(self, learners, wanted: Use) -> list[jax.Array]:
        """The bits of the leaves of one use, a column for each number of a learner."""
        bits = _bits_of(learners.played_point.dtype)
        columns = []
        for leaf, use in zip(jax.tree.leaves(learners), self.uses, strict=True):
            if use == wanted:
                columns += [*_to_bits(leaf).astype(bits).reshape(len(leaf), -1).T]
        return columns

    def to_rows(self, learners) -> jax.Array:
        """The bits of all leaves that change, one row a coordinate."""
        widest = max(leaf.dtype.itemsize for leaf in self._of(Use.READ))
        itemsize = learners.played_point.dtype.itemsize
        if widest > itemsize:
            raise ValueError(
                f"The optimizer's state has numbers of {8 * widest} bits, wider than its "
                f"weights of {8 * itemsize}: call `init(size, jnp.float64)`."
            )
        columns = (self.to_columns(learners, use) for use in (Use.READ, Use.TALLY))
        return jnp.stack([*itertools.chain(*columns)], axis=1)

    def from_rows(self, rows, shared) -> OnlineLearnerState:
        """The inverse, with the shared leaves as often as there are rows."""
        read, tallies = jnp.split(rows, [self.width(Use.READ)], axis=1)
        by_row = jax.vmap(self._from_numbers, in_axes=(0, 0, None))
        return jax.vmap(_remembered.recompute)(by_row(read, tallies, shared))

    def as_told(self, columns, shared) -> OnlineLearnerState:
        """One learner's state, to play a round, from its columns and what is read of the shared."""
        unread = (_remembered.told(leaf) for leaf in self._of(Use.SHARED))
        shared = iter(shared)
        filled = [
            next(shared) if is_read else leaf
            for is_read, leaf in zip(self.shared_is_read, unread, strict=True)
        ]
        return self._from_numbers(columns, None, filled)

    def add_bits(self, columns, *tallies) -> list[jax.Array]:
        """Columns of tallies, each the sum of two."""
        dtypes = [leaf.dtype for leaf in self._of(Use.TALLY) for _ in range(math.prod(leaf.shape))]

        def add(left, right, dtype):
            total = _from_bits(left, dtype) + _from_bits(right, dtype)
            return _to_bits(total).astype(left.dtype)

        return [*map(add, columns, tallies, dtypes)]

    def _of(self, wanted):
        return [leaf for leaf, use in zip(self.leaves, self.uses, strict=True) if use == wanted]

    def _from_numbers(self, read, tallies, shared):
        """One learner's state; without tallies as it is told to a learner that plays a round."""
        sources, leaves = {Use.READ: iter(read), Use.SHARED: iter(shared)}, []
        if tallies is not None:
            sources[Use.TALLY] = iter(tallies)
        for leaf, use in zip(self.leaves, self.uses, strict=True):
            source = sources.get(use)
            if source is None:
                leaves.append(_remembered.told(leaf))
            elif use == Use.SHARED:
                leaves.append(next(source))
            else:
                bits = jnp.stack([next(source) for _ in range(math.prod(leaf.shape))])
                leaves.append(_from_bits(bits.reshape(leaf.shape), leaf.dtype))
        return jax.tree.unflatten(self.structure, leaves)


def _layout(learner, dtype) -> Layout:
    """By what a prediction does: it hands on what can be shared."""
    number = jax.ShapeDtypeStruct((), dtype)
    start = jax.eval_shape(learner.init, number)
    leaves, structure = jax.tree.flatten(start)
    uses = jax.tree.leaves(_remembered.uses(start))
    is_told = [use in (Use.TALLY, Use.SETTLED) for use in uses]

    def predict(leaves, value):
        told = [
            _remembered.told(leaf) if known else leaf
            for leaf, known in zip(leaves, is_told, strict=True)
        ]
        return learner.predict(jax.tree.unflatten(structure, told), value)[1]

    jaxpr = jax.make_jaxpr(predict)(leaves, number).jaxpr
    for k, (received, handed_on) in enumerate(zip(jaxpr.invars, jaxpr.outvars, strict=False)):
        if received is handed_on:
            uses[k] = Use.SHARED
    # Of the features, most learners that are told them need to know the next ones only.
    place = OnlineLearnerState._fields.index("played_features")
    if not reads(predict, leaves, number)[place]:
        uses[place] = Use.SETTLED

    def all_but_shared(leaves, value):
        outputs = zip(jax.tree.leaves(predict(leaves, value)), uses, strict=True)
        return [leaf for leaf, use in outputs if use != Use.SHARED]

    is_read = zip(reads(all_but_shared, leaves, number), uses, strict=False)
    shared_is_read = [read for read, use in is_read if use == Use.SHARED]
    return Layout(structure, leaves, uses, shared_is_read)


def _bits_of(dtype):
    """The integers as wide as a number."""
    return jnp.dtype(f"int{8 * jnp.dtype(dtype).itemsize}")


def _dtype_of(bits):
    """The numbers as wide as an integer."""
    return jnp.dtype(f"float{jnp.iinfo(bits).bits}")


def _to_bits(leaf):
    if leaf.dtype == bool:
        return leaf.astype(jnp.int32)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.lax.bitcast_convert_type(leaf, _bits_of(leaf.dtype))
    return leaf


def _from_bits(bits, dtype):
    if jnp.issubdtype(dtype, jnp.floating):
        return jax.lax.bitcast_convert_type(bits.astype(_bits_of(dtype)), dtype)
    return bits.astype(dtype)
