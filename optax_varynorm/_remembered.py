"""What of a learner's state a sparse round has to read and write, and what it can do without.

A coordinate's learner has some twenty-five numbers, and moving them takes longer than learning. A
state says little of what its numbers are for, so this is known by the type of the state.
"""

import enum
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from optax_varynorm.coin_betting.freegrad_betting import FreeGradBettingState
from optax_varynorm.coin_betting.fullonedolo import CoinBettingState
from optax_varynorm.coin_betting.kt_betting import KTBettingState
from optax_varynorm.coin_betting.wealth import bet
from optax_varynorm.reductions.scale_by_coin_betting import ScaleByCoinBettingState
from optax_varynorm.reductions.with_varying_norm import WithVaryingNormState


class Use(enum.Enum):
    """Attributes:
    READ: a round reads and writes it.
    SHARED: a round hands it on as it is, and it is the same for all coordinates.
    TALLY: a round that nothing unusual happens in leaves it alone, others add to it. The learner
      is told zero, and answers what to add.
    SETTLED: a round may be told the same in every round, ``told``, and is played as before.
    """

    READ = enum.auto()
    SHARED = enum.auto()
    TALLY = enum.auto()
    SETTLED = enum.auto()


BETTORS = (CoinBettingState, FreeGradBettingState, KTBettingState)


def _uses_of_scale(state: ScaleByCoinBettingState) -> dict[str, Use]:
    # A bettor returns the difference to where it is, and is then there.
    return {"scale": Use.SETTLED} if isinstance(state.scale_state, BETTORS) else {}


def _uses_of_norm(state: WithVaryingNormState) -> dict[str, Use]:
    counted = ("skipped_rounds", "clipped_rounds", "hidden_gradient", "hidden_loss")
    uses = dict.fromkeys(counted, Use.TALLY)
    # Before the first prediction there are no features that nobody announced.
    return uses if state.announced is None else uses | {"announced": Use.SETTLED}


def _uses_of_bettor(state) -> dict[str, Use]:
    return dict.fromkeys(("coins_out_of_range", "wealth_saturations"), Use.TALLY)


RULES: dict[type, Callable[[Any], dict[str, Use]]] = {
    WithVaryingNormState: _uses_of_norm,
    ScaleByCoinBettingState: _uses_of_scale,
    **dict.fromkeys(BETTORS, _uses_of_bettor),
}


def uses(state: Any) -> Any:
    """A tree like the state of a learner of one number, of what its leaves are used for."""

    def uses_of(node):
        if type(node) not in RULES:
            return Use.READ
        fields = {name: uses(field) for name, field in node._asdict().items()}
        return type(node)(**fields | RULES[type(node)](node))

    return jax.tree.map(uses_of, state, is_leaf=lambda node: type(node) in RULES)


def told(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    """In place of a leaf that is not read: yes, or nothing."""
    return (np.ones if leaf.dtype == bool else np.zeros)(leaf.shape, leaf.dtype)


def recompute(state: Any) -> Any:
    """The state with what follows from the rest of it."""

    def recompute_node(node):
        if not isinstance(node, ScaleByCoinBettingState):
            return node
        node = node._replace(direction_state=recompute(node.direction_state))
        follows = "scale" in _uses_of_scale(node)
        return node._replace(scale=bet(node.scale_state)) if follows else node

    return jax.tree.map(
        recompute_node, state, is_leaf=lambda node: isinstance(node, ScaleByCoinBettingState)
    )
