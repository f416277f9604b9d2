"""Every layer checks its input and works in one dtype here, at its border."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


def working_dtype(tree: Any) -> jnp.dtype:
    """The dtype a layer computes in: float64 if any leaf is, float32 otherwise.

    Matrix inverses, eigenvectors and logarithms of wealth need more digits than bfloat16 or
    float16 parameters have, so the state is never narrower than float32.
    """
    dtypes = [_dtype(path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
    for dtype in dtypes:
        if jnp.issubdtype(dtype, jnp.complexfloating):
            raise ValueError(
                "Complex parameters have no order for a bettor to bet on. Optimize their real and "
                "imaginary parts: wrap the optimizer in `optax.contrib.split_real_and_imaginary`."
            )
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(
                f"Parameters must be floating point, but one leaf has dtype {dtype}. "
                "Cast it, or leave it out with `optax.masked`."
            )
    return jnp.dtype(jnp.float64 if jnp.float64 in dtypes else jnp.float32)


def _dtype(path, leaf):
    try:
        return jnp.result_type(leaf)
    except TypeError as error:
        raise ValueError(
            f"Parameters must be arrays, but {jax.tree_util.keystr(path) or 'one'} is {leaf!r}. "
            "Pass those leaves that can be optimized: of an Equinox module "
            "`eqx.filter(model, eqx.is_inexact_array)`."
        ) from error


def rounding(dtype) -> float:
    """A relative excess that rounding may explain, and nothing is reported for."""
    return math.sqrt(float(jnp.finfo(dtype).eps))


def cast(tree: Any, dtype: jnp.dtype) -> Any:
    """Leaves that have the dtype already stay the same objects."""

    def cast_leaf(leaf):
        same = isinstance(leaf, jax.Array) and leaf.dtype == dtype
        return leaf if same else jnp.asarray(leaf, dtype)

    return jax.tree.map(cast_leaf, tree)


def copy(tree: Any, dtype: jnp.dtype | None = None) -> Any:
    """A copy or cast that never aliases, so that parameters and state can both be donated."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, dtype, copy=True), tree)


def in_containers_of(example: Any, tree: Any) -> Any:
    """The leaves of a tree in another one's containers.

    Libraries have types of their own for trees of one shape: the optimizer of ``flax.nnx`` keeps
    variables where the model has parameters.
    """
    leaves = dict(jax.tree_util.tree_leaves_with_path(tree))
    places = jax.tree_util.tree_leaves_with_path(example)
    expected = [path for path, _ in places]
    if leaves.keys() != {*expected}:
        names = [[*map(jax.tree_util.keystr, paths)] for paths in (leaves, expected)]
        raise ValueError(
            f"The leaves {names[0]} do not belong to a tree whose leaves are {names[1]}. Pass the "
            "parameters that were given to `init`; `nnx.as_pure` makes arrays of flax's variables."
        )
    return jax.tree.unflatten(jax.tree.structure(example), [leaves[path] for path in expected])


def inner(left: Any, right: Any) -> jax.Array:
    """The pairing of a gradient and a point, summed over all leaves in the working dtype."""
    dtype = working_dtype(left)
    left, right = cast(left, dtype), cast(right, dtype)
    return total(jax.tree.map(lambda x, y: jnp.sum(x * y), left, right), dtype)


def total(numbers: Any, dtype: jnp.dtype) -> jax.Array:
    """The sum of a tree of numbers.

    A cumulative one: XLA compiles a plain sum of few numbers anew into everything that uses it, and
    a program would grow with the square of the number of leaves.
    """
    leaves = jax.tree.leaves(numbers)
    return (
        jnp.cumsum(jnp.stack(leaves))[-1] if len(leaves) > 1 else sum(leaves, jnp.zeros((), dtype))
    )


def dot(left: jax.Array, right: jax.Array) -> jax.Array:
    """The sum of the products of two real vectors.

    Many side by side (``vmap``), XLA's CPU backend adds them up several times as fast as products
    with a matrix than as sums.
    """
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def inner_rounding(left: Any, right: Any) -> jax.Array:
    """What rounding may have done to the pairing of two trees."""
    sizes = inner(jax.tree.map(jnp.abs, left), jax.tree.map(jnp.abs, right))
    return 8 * float(jnp.finfo(sizes.dtype).eps) * sizes


def length(tree: Any) -> jax.Array:
    """The Euclidean length of all leaves together."""
    return root(inner(tree, tree))


# A gradient is skipped when this many of its like would overflow a sum of squares.
ROUNDS_THAT_MUST_FIT = 2.0**32


def is_usable(square: jax.Array) -> jax.Array:
    """Whether a gradient of this squared length is finite, and sums of its like's squares are."""
    return square <= float(jnp.finfo(square.dtype).max) / ROUNDS_THAT_MUST_FIT


def is_summable(gradient: Any) -> jax.Array:
    """Whether sums of a gradient's like, unlike those of its square, are finite."""
    checks = (
        jnp.all(jnp.abs(leaf) <= float(jnp.finfo(leaf.dtype).max) / ROUNDS_THAT_MUST_FIT)
        for leaf in jax.tree.leaves(gradient)
    )
    return functools.reduce(jnp.logical_and, checks, jnp.ones((), bool))


def size(numbers: jax.Array) -> jax.Array:
    """Absolute values; zero for those (below 1e-32 in float32) that one cannot safely divide by."""
    sizes = jnp.abs(numbers)
    return jnp.where(sizes < float(jnp.finfo(sizes.dtype).tiny) * 2.0**20, 0, sizes)


def finite(tree: Any) -> Any:
    """The tree, or zeros if a number of it is not finite."""
    checks = (jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree))
    is_finite = functools.reduce(jnp.logical_and, checks, jnp.ones((), bool))
    return jax.tree.map(lambda leaf: jnp.where(is_finite, leaf, 0), tree)


def ratio(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """The quotient, and zero where the denominator is zero."""
    return jnp.where(denominator == 0, 0, numerator / jnp.where(denominator == 0, 1, denominator))


def reciprocal(numbers: jax.Array) -> jax.Array:
    """Of what is positive; zero elsewhere."""
    positive = numbers > 0
    return jnp.where(positive, 1 / jnp.where(positive, numbers, 1), 0)


def root(square: jax.Array) -> jax.Array:
    """The square root of what rounding may have made negative, with derivative 0 at 0."""
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


# So many units in the last place are rounding; more are somebody's doing.
ROUNDING_UNITS = 8


def step_to(target: Any, expected: Any, params: Any, precision: Any, *sizes: Any) -> Any:
    """The step to a target, for a layer that knows where it left the parameters.

    Where they are not there, but for rounding, somebody else has moved them, and that stays: the
    step is then the difference of the two places. What rounding moved is corrected, so that it does
    not add up.

    Args:
      target: where the layer wants to be.
      expected: where it left the parameters.
      params: where they are.
      precision: of each leaf, from ``precision_of``.
      sizes: numbers that the last step was rounded at, if they are not the parameters' own.
    """

    def leaf_step(target, expected, param, finfo, *sizes):
        largest = functools.reduce(jnp.maximum, map(jnp.abs, (param, expected, *sizes)))
        by_rounding = jnp.abs(param - expected) <= rounding_of(largest, finfo)
        return target - jnp.where(by_rounding, param, expected)

    return jax.tree.map(leaf_step, target, expected, params, precision, *sizes)


def rounding_of(size: jax.Array, finfo: jnp.finfo | None = None) -> jax.Array:
    """As much as rounding may change sums of numbers of this size, in their dtype or another."""
    return ROUNDING_UNITS * float((finfo or jnp.finfo(size.dtype)).eps) * size


def precision_of(params: Any) -> Any:
    """What each leaf's dtype can tell apart: its ``finfo``."""
    return jax.tree.map(lambda leaf: jnp.finfo(jnp.result_type(leaf)), params)


def in_working_precision(
    name: str, init: Callable, update: Callable, knows_its_place: bool = False
) -> optax.GradientTransformationExtraArgs:
    """Hand a layer checked trees of one dtype, and cast its updates back to the parameters'.

    One that knows where the parameters should be is told how precise they are.
    """

    def checked_init(params):
        return init(copy(params, working_dtype(params)))

    def checked_update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError(
                f"`{name}` needs to know the parameters: call `update(gradients, state, params)`."
            )
        check_shapes(f"`{name}`", updates, params)
        dtype = working_dtype(params)
        if knows_its_place:
            extra_args["precision"] = precision_of(params)
        step, state = update(cast(updates, dtype), state, cast(params, dtype), **extra_args)
        return jax.tree.map(_narrow, step, params), state

    return optax.GradientTransformationExtraArgs(checked_init, checked_update)


def _narrow(step, param):
    """Cast one leaf's step to the parameter's dtype; float16 saturates instead of overflowing."""
    dtype = jnp.result_type(param)
    if jnp.finfo(dtype).max < jnp.finfo(step.dtype).max:
        low, high = (step.dtype.type(jnp.finfo(dtype).min), step.dtype.type(jnp.finfo(dtype).max))
        start = jnp.asarray(param, step.dtype)
        step = jnp.clip(jnp.clip(start + step, low, high) - start, low, high)
    return step.astype(dtype)


def arrival(starts: Any, targets: Any) -> Any:
    """Where parameters that start here arrive when they are sent to a target, in its dtype."""

    def arrive(start, target):
        wide = start.astype(target.dtype)
        return as_precise_as(start, wide + _narrow(target - wide, start).astype(target.dtype))

    return jax.tree.map(arrive, starts, targets)


def as_precise_as(leaf: jax.Array, wide: jax.Array) -> jax.Array:
    """Rounded like a leaf's dtype. XLA leaves a cast there and back out."""
    finfo = jnp.finfo(jnp.result_type(leaf))
    return jax.lax.reduce_precision(wide, finfo.nexp, finfo.nmant)


def check_shapes(name: str, updates: Any, params: Any) -> None:
    """An error that names the leaves which the two trees do not share."""
    received = dict(jax.tree_util.tree_leaves_with_path(updates))
    expected = dict(jax.tree_util.tree_leaves_with_path(params))
    keystr = jax.tree_util.keystr
    if received.keys() != expected.keys():
        working_dtype(params)  # which says so if they are no arrays
        raise ValueError(
            f"{name} received gradients for the leaves {[*map(keystr, received)]} of a tree "
            f"whose leaves are {[*map(keystr, expected)]}. Pass the gradient of the same "
            "parameters that were given to `init`."
        )
    for path, param in expected.items():
        if jnp.shape(received[path]) != jnp.shape(param):
            raise ValueError(
                f"{name} received a gradient of shape {jnp.shape(received[path])} for the "
                f"parameter {keystr(path) or 'array'} of shape {jnp.shape(param)}. They must agree."
            )
