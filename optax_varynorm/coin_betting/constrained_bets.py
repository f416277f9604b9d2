"""An artificial constraint for a one-dimensional learner."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm.coin_betting import wealth
from optax_varynorm.coin_betting.wealth_bounds import constraint_cost
from optax_varynorm.learners import Certified, displacement, telling


class ConstrainedBetsState(NamedTuple):
    """Trees shaped like the parameters, one learner a coordinate, and a few scalars.

    Attributes:
      initial_radius: the radius of the first round, a scalar.
      seen_coin_size_sum: sum of the coins' absolute values; the radius grows with it.
      withheld_coin_size_sum: the part of it that the learner was not told.
      withheld_out_of_range: number of withheld coins that were outside [-1, 1] by more than
        rounding; the learner counts the others.
      bettor_state: state of the wrapped learner.
    """

    initial_radius: jax.Array
    seen_coin_size_sum: optax.Params
    withheld_coin_size_sum: optax.Params
    withheld_out_of_range: jax.Array
    bettor_state: optax.OptState

    @property
    def bet_radius(self) -> optax.Params:
        """``D_t`` of the next round: no bet is larger."""
        return jax.tree.map(
            lambda size: self.initial_radius * jnp.sqrt(1 + size), self.seen_coin_size_sum
        )


def constrained_bets(
    bettor: optax.GradientTransformation, radius=1.0
) -> optax.GradientTransformationExtraArgs:
    r"""Cutkosky, *Artificial Constraints and Hints for Unbounded Online Learning* (COLT 2019):

    .. math::
       y_t = \mathrm{clip}(\hat y_t, -D_t, D_t), \qquad
       D_t = r \sqrt{1 + \textstyle\sum_{i<t} |c_i|},

    where :math:`\hat y_t` is what the learner would play, around the starting point. It receives
    the coin :math:`c_t`, or 0 if it is outside and the coin pushes it further
    (:math:`c_t \hat y_t < 0`): the tight surrogate in one dimension.

    Three things hold, whatever the coins in [-1, 1].

    * *The regret against* :math:`|u| \le r` *is the learner's.* For :math:`|u| \le D_t`, a coin
      that was handed on has :math:`c_t y_t \le c_t \hat y_t`, since the clip moves against it or
      not at all; a withheld one has :math:`c_t (y_t - u) \le 0`, since :math:`y_t` is the end of
      the interval towards which it pushes.
    * *A larger* ``u`` *pays at most* :math:`\tfrac13 (|u|^3 / r^2 - r)` *more*: only withheld coins
      of rounds with :math:`D_t < |u|` cost anything, :math:`|c_t| (|u| - D_t)`. That is a sum of
      the decreasing function :math:`|u| - r\sqrt{1 + a}` at the left ends of steps of length at
      most one, until it is zero at :math:`a = u^2/r^2 - 1`: its integral,
      :math:`\tfrac13 |u|^3 / r^2 - |u| + \tfrac23 r`, plus at most its first value,
      :math:`|u| - r`. Nor is it more than :math:`|u| - r` times the withheld coins' sizes.
    * :math:`|y_t| \le D_t`. A gradient cut from the dual norm ``N > 1`` to one hides a loss
      :math:`\langle g_t - g_t / N, y_t x_t\rangle \le (N - 1) |y_t| \|x_t\| \le (N - 1) D_t`. One
      outlier can not cost an exponentially grown bet.

    The square root is the largest power of the coins for which hidden losses stay of the order
    of the regret, :math:`D_T \approx r\sqrt T`; a smaller power ``1/k`` would pay
    :math:`|u|^{k + 1} / r^k`.

    Args:
      bettor: a learner of one number, such as ``coin_betting()``; any Optax optimizer works.
      radius: the radius of the first round, in the units of the parameters; for a scale learner
        these are units of loss.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> learner = vn.constrained_bets(vn.kt_betting(), radius=1.0)
    >>> bet, state = jnp.zeros(()), learner.init(jnp.zeros(()))
    >>> for _ in range(8):
    ...     step, state = learner.update(jnp.array(-1.0), state, bet)
    ...     bet = optax.apply_updates(bet, step)
    >>> print(f"{bet:.2f}")  # `kt_betting` alone would be at 3.50
    3.00
    """
    _arguments.require_moderate("radius", radius, "how far from the start the first bet may be")
    bettor = telling(bettor)

    def unconstrained(state, like, *_):
        return displacement(bettor, state.bettor_state, like)

    def constrained(state, like, *_):
        return jax.tree.map(
            lambda bet, limit: jnp.clip(bet, -limit, limit),
            unconstrained(state, like),
            state.bet_radius,
        )

    def init(params):
        return ConstrainedBetsState(
            initial_radius=jnp.array(radius, _precision.working_dtype(params)),
            seen_coin_size_sum=optax.tree.zeros_like(params),
            withheld_coin_size_sum=optax.tree.zeros_like(params),
            withheld_out_of_range=jnp.zeros((), jnp.int32),
            bettor_state=bettor.init(optax.tree.zeros_like(params)),
        )

    def update(updates, state, params, **extra_args):
        bets = unconstrained(state, params)
        pushes_outward = jax.tree.map(
            lambda bet, limit, coin: (jnp.abs(bet) > limit) & (coin * jnp.sign(bet) < 0),
            bets,
            state.bet_radius,
            updates,
        )
        withheld = jax.tree.map(lambda out, c: jnp.where(out, c, 0), pushes_outward, updates)
        handed_on = jax.tree.map(lambda out, c: jnp.where(out, 0, c), pushes_outward, updates)
        _, bettor_state = bettor.update(handed_on, state.bettor_state, bets, **extra_args)
        new = state._replace(
            seen_coin_size_sum=_add_sizes(state.seen_coin_size_sum, updates),
            withheld_coin_size_sum=_add_sizes(state.withheld_coin_size_sum, withheld),
            withheld_out_of_range=state.withheld_out_of_range
            + wealth.count(wealth.is_out_of_range, withheld),
            bettor_state=bettor_state,
        )
        return optax.tree.sub(constrained(new, params), constrained(state, params)), new

    def most_lost(state, comparator, charged=None):
        del charged  # of bets that the bettor did not make
        no_proof = state.withheld_out_of_range > 0
        return jax.tree.map(
            lambda bound, u, withheld: jnp.where(
                no_proof, jnp.inf, bound + constraint_cost(u, state.initial_radius, withheld)
            ),
            bettor.most_lost(state.bettor_state, comparator),
            comparator,
            state.withheld_coin_size_sum,
        )

    layer = _precision.in_working_precision("constrained_bets", init, update)
    return Certified(layer, most_lost=most_lost, displacement=constrained)


def _add_sizes(sums, coins):
    return jax.tree.map(lambda n, c: n + jnp.abs(wealth.cut_coin(c)), sums, coins)
