"""What is written down while a game is played."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from optax_varynorm.certificates import regret, regret_bound
from optax_varynorm.counts import counts
from optax_varynorm.learners import NoRegretBoundError


class History(NamedTuple):
    """Arrays whose last axis is the round; what the optimizer's state does not offer is ``None``.

    Attributes:
      losses: the loss of each round, paid before it was learned from.
      regret: ``vn.regret`` against the comparator after each round; needs a comparator.
      wealth: after each round, the sum of the wealth of all bettors in the state.
      clipped: after each round, how many gradients were cut, by the learner that cut most.
      bound: ``vn.regret_bound`` against the comparator at the end of each chunk. It costs O(d^3)
        in a matrix norm, so it is not taken every round.
      bound_rounds: the number of rounds played at the end of each chunk.
    """

    losses: np.ndarray
    regret: np.ndarray | None
    wealth: np.ndarray | None
    clipped: np.ndarray | None
    bound: np.ndarray | None
    bound_rounds: np.ndarray


class Record(NamedTuple):
    """One round of the history, or the rounds of a chunk."""

    losses: Any
    regret: Any
    wealth: Any
    clipped: Any


def record_round(loss: jax.Array, state: optax.OptState, comparator: optax.Params | None) -> Record:
    """What the state tells after a round."""
    return Record(
        losses=jnp.asarray(loss),
        regret=None if comparator is None else regret(state, comparator),
        wealth=_wealth(state),
        clipped=counts(state).get("clipped_rounds"),
    )


def known_bound(
    optimizer: optax.GradientTransformation,
    state: optax.OptState,
    comparator: optax.Params | None,
) -> jax.Array | None:
    """The regret's bound, or ``None`` where nobody has proven one."""
    if comparator is None:
        return None
    try:
        return regret_bound(optimizer, state, comparator)
    except (NoRegretBoundError, NotImplementedError):
        return None


def _wealth(state):
    found = optax.tree.get_all_with_path(state, "log_wealth")
    leaves = jax.tree.leaves([tree for _, tree in found])
    return sum(jnp.sum(jnp.exp(leaf)) for leaf in leaves) if leaves else None
