"""Float64 in the middle of a float32 program."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

# TPUs have no factorizations in float64.
BACKENDS = ("cpu", "gpu")


def is_wider(dtype) -> bool:
    """Whether ``in_float64`` has more digits than this dtype, on this machine."""
    return dtype != "float64" and jax.default_backend() in BACKENDS


def in_float64(function: Callable) -> Callable:
    """The function, in which arrays may be float64 whatever ``jax_enable_x64`` is outside.

    Its derivatives are forward ones only, and in float64 too.

    Args:
      function: from trees of arrays to a tree of arrays. It casts what it takes and returns, and
        may use arrays from outside.
    """

    def call(*arguments):
        leaves, structure = jax.tree.flatten(arguments)
        with jax.enable_x64(True):
            traced, shape = jax.make_jaxpr(
                lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), return_shape=True
            )(*leaves)
            # What the function uses from outside becomes an argument, for the rules to see.
            outside = [jnp.asarray(array) for array in traced.consts]
        results = _call.bind(*outside, *leaves, jaxpr=traced.jaxpr)
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return call


# The setting holds while a function is traced. JAX traces again, later and elsewhere, to batch, to
# differentiate and to compile, so that for all of this there are rules that set it.
_call = Primitive("float64_call")
_call.multiple_results = True


def _function_of(jaxpr):
    outside = len(jaxpr.constvars)
    return lambda *arrays: jaxpr_as_fun(ClosedJaxpr(jaxpr, arrays[:outside]))(*arrays[outside:])


@_call.def_impl
def _run(*arrays, jaxpr):
    return jax.jit(functools.partial(_call.bind, jaxpr=jaxpr))(*arrays)


@_call.def_abstract_eval
def _shapes(*arrays, jaxpr):
    del arrays
    return [variable.aval for variable in jaxpr.outvars]


def _lower(context, *arrays, jaxpr):
    with jax.enable_x64(True):
        return mlir.lower_fun(_function_of(jaxpr), multiple_results=True)(context, *arrays)


def _batch(arrays, axes, *, jaxpr):
    results = in_float64(jax.vmap(_function_of(jaxpr), axes))(*arrays)
    return results, [0] * len(results)


def _differentiate(arrays, directions, *, jaxpr):
    function = _function_of(jaxpr)

    def change(arrays, directions):
        return jax.jvp(function, arrays, directions)[1]

    directions = map(ad.instantiate_zeros, directions)
    # Apart from the change, which may be wanted in many directions.
    results = _call.bind(*arrays, jaxpr=jaxpr)
    return results, in_float64(change)(tuple(arrays), tuple(directions))


mlir.register_lowering(_call, _lower)
batching.primitive_batchers[_call] = _batch
ad.primitive_jvps[_call] = _differentiate
