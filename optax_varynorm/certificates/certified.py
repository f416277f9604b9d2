"""Learners that know a bound of their own regret."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import optax

from optax_varynorm.norms import VaryingNorm

# (state, comparator, norm, norm_state) -> an upper bound of the regret against the comparator. The
# last two are the norm of the round that an outer layer provides, or `None`.
RegretBound = Callable[..., jax.Array]


class Follower(NamedTuple):
    """What a learner needs that always plays a multiple of a leader which its norm knows.

    Attributes:
      init: from the parameters to a state without the point, which can be found again.
      gradient_sum: from a state to the sum of the gradients that the leader follows.
    """

    init: Callable[[optax.Params], optax.OptState]
    gradient_sum: Callable[[optax.OptState], optax.Updates]


class CoordinateLearner(NamedTuple):
    """What a learner of one coordinate consists of, around ``ftrl_step`` (``alg:diagscale``).

    Attributes:
      norm: of one coordinate, ``feature_size_norm(...)``.
      scale_learner: of one coordinate, such as ``coin_betting()``.
    """

    norm: VaryingNorm
    scale_learner: optax.GradientTransformation


class NoRegretBoundError(ValueError):
    """Nobody has proven a bound of the regret of a learner."""


class CertifiedTransformation(optax.GradientTransformationExtraArgs):
    """An Optax transformation with three more attributes.

    Layers build ``regret_bound`` from the bounds of what they wrap, so that ``track_regret`` can
    certify any composition of them by the norms and the wealth in its state. By
    ``coordinate_learner`` one that is Algorithm 3 with so many parameters says so, and by
    ``follower`` one that need not keep its point beside the norm's state.
    """

    regret_bound: RegretBound
    coordinate_learner: Callable[[int], CoordinateLearner | None]
    follower: Follower | None

    def __new__(
        cls,
        transformation: optax.GradientTransformation,
        regret_bound: RegretBound,
        coordinate_learner: Callable[[int], CoordinateLearner | None] = lambda size: None,
        follower: Follower | None = None,
    ):
        self = super().__new__(cls, transformation.init, transformation.update)
        self.regret_bound = regret_bound
        self.coordinate_learner = coordinate_learner
        self.follower = follower
        return self

    def __getnewargs__(self):
        """What ``copy`` makes another one from: that of a NamedTuple lacks the attributes."""
        transformation = optax.GradientTransformationExtraArgs(self.init, self.update)
        return transformation, self.regret_bound, self.coordinate_learner, self.follower


def regret_bound_of(learner: optax.GradientTransformation) -> RegretBound:
    """The bound of a learner; asking for a number raises an error if it has none."""

    def unknown(*args):
        raise NoRegretBoundError(
            "No regret bound is known for this optimizer. Those of this package have one, and so "
            "do `with_varying_norm`, `project`, `combine` and `scale_by_coin_betting` around "
            "`ftrl_step()` and a bettor of this package. The regret itself is known for any: "
            "`regret(state, comparator)`."
        )

    return getattr(learner, "regret_bound", unknown)
