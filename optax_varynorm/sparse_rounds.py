"""Rounds of a linear model that touch the features that are not zero, and no others."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm._rows import one_long_vmap, put_rows, take_rows
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
    rows: one for each feature, and one for none: the bits of what changes in its learner's state.
    shared: what never changes, and is the same for all.
    """

    rows: jax.Array
    shared: list[jax.Array]


class Visit(NamedTuple):
    """Attributes:
    indices: which features.
    learners: the states of their learners, after the prediction.
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
    filled up to one length by the index ``size``, any number of times, and zeros. A prediction that
    ``update`` does not learn from is forgotten. ``vmap`` runs several models at once.

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
        return learner, _layout(learner, jnp.dtype(f"float{jnp.iinfo(bits).bits}"))

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
        # Narrower integers could not count the rows of several models.
        indices = jnp.asarray(indices, jnp.int32)
        learners = layout.from_rows(take_rows(state.rows, indices), state.shared)
        weights, learners = one_long_vmap(learner.predict)(learners, values)
        return weights, Visit(indices, learners)

    def update(state, visit, gradient):
        _, layout = learner_and_layout(len(state.rows) - 1, state.rows.dtype)
        learners = visit.learners._replace(pending_gradient=gradient)
        return state._replace(rows=put_rows(state.rows, visit.indices, layout.to_rows(learners)))

    return SparseLearner(init, predict, update, pack, unpack)


class Layout(NamedTuple):
    """How the state of one coordinate's learner lies in a row.

    Attributes:
      structure: of the state.
      leaves: shapes and dtypes of its leaves.
      is_shared: which of them a prediction hands on as they are.
    """

    structure: Any
    leaves: list[jax.ShapeDtypeStruct]
    is_shared: list[bool]

    def first_of_shared(self, learners) -> list[jax.Array]:
        leaves = jax.tree.leaves(learners)
        return [leaf[0] for leaf, same in zip(leaves, self.is_shared, strict=True) if same]

    def to_rows(self, learners) -> jax.Array:
        """The bits of all leaves that are not shared, one row a coordinate."""
        leaves = zip(jax.tree.leaves(learners), self.is_shared, strict=True)
        columns = [_to_bits(leaf) for leaf, is_shared in leaves if not is_shared]
        bits = _bits_of(learners.played_point.dtype)
        widest = max((column.dtype for column in columns), key=lambda dtype: dtype.itemsize)
        if widest.itemsize > bits.itemsize:
            raise ValueError(
                f"The optimizer's state has numbers of {8 * widest.itemsize} bits, wider than its "
                f"weights of {8 * bits.itemsize}: call `init(size, jnp.float64)`."
            )
        flat = [column.astype(bits).reshape(len(column), -1) for column in columns]
        return jnp.concatenate(flat, axis=1)

    def from_rows(self, rows, shared) -> OnlineLearnerState:
        """The inverse, with the shared leaves as often as there are rows."""
        shared, leaves, first = iter(shared), [], 0
        for leaf, is_shared in zip(self.leaves, self.is_shared, strict=True):
            shape = (len(rows), *leaf.shape)
            if is_shared:
                leaves.append(jnp.broadcast_to(next(shared), shape))
            else:
                width = math.prod(leaf.shape)
                bits = rows[:, first : first + width].reshape(shape)
                leaves.append(_from_bits(bits, leaf.dtype))
                first += width
        return jax.tree.unflatten(self.structure, leaves)


def _layout(learner, dtype) -> Layout:
    number = jax.ShapeDtypeStruct((), dtype)
    leaves, structure = jax.tree.flatten(jax.eval_shape(learner.init, number))
    jaxpr = jax.make_jaxpr(lambda state, value: learner.predict(state, value)[1])(
        jax.tree.unflatten(structure, leaves), number
    ).jaxpr
    received, handed_on = jaxpr.invars[: len(leaves)], jaxpr.outvars
    return Layout(structure, leaves, [a is b for a, b in zip(received, handed_on, strict=True)])


def _bits_of(dtype):
    """The integers as wide as a number."""
    return jnp.dtype(f"int{8 * jnp.dtype(dtype).itemsize}")


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
