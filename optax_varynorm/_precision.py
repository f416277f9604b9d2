"""Every layer checks its input and works in one dtype here, at its border."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _short_leaves


def working_dtype(tree: Any) -> jnp.dtype:
    """The dtype a layer computes in: float64 if any leaf is, float32 otherwise.

    Matrix inverses, eigenvectors and logarithms of wealth need more digits than bfloat16 or
    float16 parameters have, so the state is never narrower than float32.
    """
    dtypes = [jnp.result_type(leaf) for leaf in jax.tree.leaves(tree)]
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


def rounding(dtype) -> float:
    """A relative excess that rounding may explain, and nothing is reported for."""
    return math.sqrt(float(jnp.finfo(dtype).eps))


def cast(tree: Any, dtype: jnp.dtype) -> Any:
    """Leaves that have the dtype already stay the same objects."""

    def cast_leaf(leaf):
        same = isinstance(leaf, jax.Array) and leaf.dtype == dtype
        return leaf if same else jnp.asarray(leaf, dtype)

    return jax.tree.map(cast_leaf, tree)


def copy(tree: Any, dtype: jnp.dtype) -> Any:
    """A cast that never aliases its input, so that parameters and state can both be donated."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, dtype, copy=True), tree)


# Sums of up to so many products are taken by rows of so many numbers.
FEW, COLUMNS = 2**14, 256


def dot(left: jax.Array, right: jax.Array) -> jax.Array:
    """The sum of the products of two real arrays of one shape.

    XLA's CPU backend adds short vectors up, and many side by side (``vmap``), two to five times as
    fast when told to multiply a matrix by ones. The products are an array, though, so that long
    vectors are better off with ``vdot``.
    """
    if left.size > FEW:
        return jnp.vdot(left, right)
    return (left * right).reshape(()) if left.size == 1 else _total((left * right).ravel())


def _total(numbers: jax.Array) -> jax.Array:
    if numbers.size <= COLUMNS:
        return _times_ones(numbers)
    rows = numbers.size // COLUMNS
    body, tail = numbers[: rows * COLUMNS], numbers[rows * COLUMNS :]
    total = _total(_times_ones(body.reshape(rows, COLUMNS)))
    return total + _times_ones(tail) if tail.size else total


def _times_ones(rows: jax.Array) -> jax.Array:
    # Accelerators would round the factors to bfloat16.
    ones = jnp.ones(rows.shape[-1], rows.dtype)
    return jnp.matmul(rows, ones, precision=jax.lax.Precision.HIGHEST)


# Long arrays are added up as so many rows: enough to leave little for a second sum, few enough for
# XLA to unroll the loop over them, without which the one over the columns is not vectorized.
ROWS = 8


def sums(function: Callable[..., tuple[jax.Array, ...]], *trees: Any) -> tuple[jax.Array, ...]:
    """Sums over all leaves of several elementwise functions, at one read of long leaves.

    The time that long arrays take is that of reading them. XLA's CPU backend makes a loop for each
    of its results, but for a reduction of several operands it makes only one.

    Args:
      function: from numbers of each tree to the tuple of what is to be summed.
      trees: of one structure.
    """
    if _short_leaves.are_short(trees[0]):
        return _sums_of_leaf(function, *map(_short_leaves.join, trees))
    leaves = [*zip(*map(jax.tree.leaves, trees), strict=True)]
    nothing = tuple(jnp.zeros(0, working_dtype(tree)) for tree in trees)
    parts = [_sums_of_leaf(function, *arrays) for arrays in leaves or [nothing]]
    return tuple(functools.reduce(jnp.add, each) for each in zip(*parts, strict=True))


def _sums_of_leaf(function, *arrays):
    arrays = tuple(map(jnp.ravel, arrays))
    size = arrays[0].size
    if size <= FEW:
        return tuple(map(_total, function(*arrays)))
    # So many columns that what is left after the first sum is a matrix, without cutting it.
    columns = size // (ROWS * COLUMNS) * COLUMNS
    end = ROWS * columns
    body = _add_rows(function(*(x[:end].reshape(ROWS, columns) for x in arrays)))
    parts = (_total(_times_ones(x.reshape(-1, COLUMNS))) for x in body)
    rest = map(_total, function(*(x[end:] for x in arrays)))
    return tuple(map(jnp.add, parts, rest))


def _add_rows(operands):
    if len(operands) == 1:
        # A reduction of one operand would be made by another, slower loop.
        upper, lower = jnp.split(operands[0], 2)
        return (jnp.add(*_add_rows((upper, lower))),)
    zeros = tuple(jnp.zeros((), x.dtype) for x in operands)
    return jax.lax.reduce(operands, zeros, lambda *pair: tuple(map(jnp.add, *pair)), (0,))


def inner(left: Any, right: Any) -> jax.Array:
    """The pairing of a gradient and a point, summed over all leaves in the working dtype."""
    dtype = working_dtype(left)
    left, right = cast(left, dtype), cast(right, dtype)
    if _short_leaves.are_short(left):
        return dot(_short_leaves.join(left), _short_leaves.join(right))
    products = jax.tree.map(dot, left, right)
    return functools.reduce(jnp.add, jax.tree.leaves(products), jnp.zeros((), dtype))


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


def root(square: jax.Array) -> jax.Array:
    """The square root of what rounding may have made negative, with derivative 0 at 0."""
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def in_working_precision(
    name: str, init: Callable, update: Callable
) -> optax.GradientTransformationExtraArgs:
    """Hand a layer checked trees of one dtype, and cast its updates back to the parameters'."""

    def checked_init(params):
        return init(copy(params, working_dtype(params)))

    def checked_update(updates, state, params=None, **extra_args):
        if params is None:
            raise ValueError(
                f"`{name}` moves from where the parameters are, so it needs them: call "
                "`update(gradients, state, params)`."
            )
        _check_shapes(name, updates, params)
        dtype = working_dtype(params)
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


def _check_shapes(name, updates, params):
    received = dict(jax.tree_util.tree_leaves_with_path(updates))
    expected = dict(jax.tree_util.tree_leaves_with_path(params))
    keystr = jax.tree_util.keystr
    if received.keys() != expected.keys():
        raise ValueError(
            f"`{name}` received gradients for the leaves {[*map(keystr, received)]} of a tree "
            f"whose leaves are {[*map(keystr, expected)]}. Pass the gradient of the same "
            "parameters that were given to `init`."
        )
    for path, param in expected.items():
        if jnp.shape(received[path]) != jnp.shape(param):
            raise ValueError(
                f"`{name}` received a gradient of shape {jnp.shape(received[path])} for the "
                f"parameter {keystr(path) or 'array'} of shape {jnp.shape(param)}. They must agree."
            )
