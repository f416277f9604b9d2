"""Who runs: what ``--only`` and ``--try`` ask for."""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import optax

import optax_varynorm as vn
from optax_varynorm.racing.peers import KINDS, Contender


def tried(expressions: Iterable[str]) -> dict[str, Callable[[], optax.GradientTransformation]]:
    """Python expressions for more of ours, such as ``vn.fixed_norm(epsilon=10.0)``."""
    names = {"vn": vn, "optax": optax, "jax": jax, "jnp": jnp}
    return {text: lambda text=text: eval(text, names) for text in expressions}


def choose(contenders: dict[str, Contender], only: str | None, tries: Iterable[str]) -> set[str]:
    """The names that ``--only`` asks to run, by name or by kind; tried ones always run."""
    if only is None:
        return set(contenders)
    kinds = {kind: {n for n, c in contenders.items() if c.kind == kind} for kind in KINDS}
    kinds["peers"] = kinds["untuned"] | kinds["tuned"]
    chosen = set(tries)
    for word in filter(None, only.split(",")):
        if word not in contenders and word not in kinds:
            raise SystemExit(f"--only knows {', '.join([*contenders, *kinds])}; not {word!r}.")
        chosen |= kinds.get(word, {word})
    return chosen
