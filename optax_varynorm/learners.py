r"""What a learner may tell of itself: where it is, and what its theorem still allows.

A learner that received the gradients :math:`r_t` and played the displacements :math:`z_t` knows by
its wealth what it was charged, :math:`C = \sum_t \langle r_t, z_t\rangle`, and by its theorem
that, for every comparator, :math:`C` is at most some number :math:`M(u)`. The difference is its
*slack*, :math:`M(u) - C \ge 0`. Slacks add up where learners do, whatever else happened to the
parameters: with the true gradients :math:`g_t` and points :math:`w_t`, and one :math:`u_j` for each
learner, :math:`u - w_1 = \sum_j u_j`,

.. math::
   R_T(u) = \underbrace{\sum_t \langle g_t, w_t - u\rangle}_{\text{exact, for any chain}}
   \le R_T(u) + \sum_j \mathrm{slack}_j(u_j),
   \qquad
   \sum_j M_j(u_j) + \Big[\sum_t\langle g_t, w_t - w_1\rangle - \sum_j C_j\Big]
   - \Big\langle \sum_t g_t, u - w_1\Big\rangle

being two ways to write the right-hand side. What clipping hid, what rounding lost and what other
transformations did to the parameters is all in the bracket.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from optax_varynorm import _precision
from optax_varynorm.norms import VaryingNorm

# (state, u - w_1, norm, norm_state) -> how much more the learner might have lost. The last two are
# the norm of the round that an outer layer provides, or `None`.
Slack = Callable[..., jax.Array]
# (state, a tree like the parameters, norm, norm_state) -> z_t. The last two as for a slack.
Displacement = Callable[..., optax.Params]


class DirectionBound(NamedTuple):
    r"""What a direction learner promises against a comparator.

    Attributes:
      length: :math:`\|u\|` of the comparator.
      most_lost: :math:`\|u\| \sum_t \langle g_t, x_t\rangle` is at most this.
    """

    length: jax.Array
    most_lost: jax.Array


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


def _unknown(*args):
    raise NoRegretBoundError(
        "No regret bound is known for this optimizer. Those of this package have one, and so "
        "do `with_varying_norm`, `project`, `combine` and `scale_by_coin_betting` around "
        "`ftrl_step()` and a bettor of this package. The regret itself is known for any: "
        "`regret(state, comparator)`."
    )


class Certified(optax.GradientTransformationExtraArgs):
    r"""An Optax transformation with a theorem.

    Attributes:
      slack: of a learner: see ``Slack``.
      most_lost: of a direction learner: like ``slack``, but a ``DirectionBound``. Of a bettor: what
        :math:`\sum_t g_t (y_t - u)` is at most, from its state, ``u``, and what it was charged in
        all, if that is known.
      displacement: from a state, and a tree like the parameters for its shapes, to :math:`z_t`:
        what all updates so far add up to but for rounding; ``None`` if the state does not tell.
      coordinate_learner: from a number of parameters to the parts of Algorithm 3, if it is that.
    """

    slack: Slack
    most_lost: Callable[..., Any]
    displacement: Displacement | None
    coordinate_learner: Callable[[int], CoordinateLearner | None]

    def __new__(
        cls,
        transformation: optax.GradientTransformation,
        slack: Slack = _unknown,
        most_lost: Callable[..., Any] = _unknown,
        displacement: Displacement | None = None,
        coordinate_learner: Callable[[int], CoordinateLearner | None] = lambda size: None,
    ):
        self = super().__new__(cls, transformation.init, transformation.update)
        self.slack = slack
        self.most_lost = most_lost
        self.displacement = displacement
        self.coordinate_learner = coordinate_learner
        return self

    def __getnewargs__(self):
        """What ``copy`` makes another one from: that of a NamedTuple lacks the attributes."""
        bare = optax.GradientTransformationExtraArgs(self.init, self.update)
        return bare, self.slack, self.most_lost, self.displacement, self.coordinate_learner


def slack_of(learner: optax.GradientTransformation) -> Slack:
    """The slack of a learner; asking for a number raises an error if it has no theorem."""
    return getattr(learner, "slack", _unknown)


def displacement_of(learner: optax.GradientTransformation) -> Displacement | None:
    """The displacement of a learner whose state tells it."""
    return getattr(learner, "displacement", None)


def displacement(
    learner: Certified, state: optax.OptState, like: optax.Params, *geometry
) -> optax.Params:
    """What a learner tells that tells it: see ``telling``."""
    assert learner.displacement is not None
    return learner.displacement(state, like, *geometry)


def most_lost_of(learner: optax.GradientTransformation) -> Callable[..., Any]:
    """The bound of a direction learner or a bettor, likewise."""
    return getattr(learner, "most_lost", _unknown)


class TellingState(NamedTuple):
    """Attributes:
    moved_by: the sum of the learner's updates.
    told_learner_state: state of the learner.
    """

    moved_by: optax.Params
    told_learner_state: optax.OptState


def telling(learner: optax.GradientTransformation) -> Certified:
    """The learner; if its state does not tell its displacement, one whose state adds it up."""
    if displacement_of(learner) is not None:
        assert isinstance(learner, Certified)
        return learner
    update_learner = optax.with_extra_args_support(learner).update

    def init(params):
        dtype = _precision.working_dtype(params)
        zeros = _precision.cast(optax.tree.zeros_like(params), dtype)
        return TellingState(zeros, learner.init(params))

    def update(updates, state, params=None, **extra_args):
        step, learner_state = update_learner(
            updates, state.told_learner_state, params, **extra_args
        )
        dtype = _precision.working_dtype(state.moved_by)
        moved_by = optax.tree.add(state.moved_by, _precision.cast(step, dtype))
        return step, TellingState(moved_by, learner_state)

    def of_learner(claim):
        return lambda state, *arguments: claim(state.told_learner_state, *arguments)

    return Certified(
        optax.GradientTransformationExtraArgs(init, update),
        of_learner(slack_of(learner)),
        of_learner(most_lost_of(learner)),
        displacement=lambda state, *_: state.moved_by,
    )
