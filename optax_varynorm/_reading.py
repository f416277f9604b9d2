"""What a function's result depends on."""

from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters.partial_eval import dce_jaxpr


def reads(function: Callable, *arguments: Any) -> list[bool]:
    """Whether the result depends on each leaf of the arguments.

    By the function's equations, those in scans, branches and calls included: what a
    ``while_loop`` is given, it reads.
    """
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    return dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1]
