"""What a function's result depends on."""

from collections.abc import Callable
from typing import Any

import jax


def reads(function: Callable, *arguments: Any) -> list[bool]:
    """Whether the result depends on each leaf of the arguments.

    By the function's equations: what a loop is given, it reads.
    """
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    needed = {*map(id, jaxpr.outvars)}
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(map(id, equation.outvars)):
            needed.update(map(id, equation.invars))
    return [id(variable) in needed for variable in jaxpr.invars]
