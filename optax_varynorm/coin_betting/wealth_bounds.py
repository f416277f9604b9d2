r"""The bettors' regret bounds, each from a lower bound on its wealth.

A bettor's regret is :math:`\epsilon - \mathrm{Wealth}_T - u G_T` with :math:`G_T = \sum_t g_t`. So
if its wealth is at least :math:`F(|G_T|)` whatever the coins, the regret is at most

.. math:: \epsilon + \sup_{x \ge 0}\, \big(|u| x - F(x)\big).

A comparator ``u`` is measured from the starting point. Everything is elementwise.
"""

import jax
import jax.numpy as jnp

# From a start within a few units of the best tangent, the fixed point is reached to 1% in two
# steps; each step is a valid bound.
TANGENT_STEPS = 3
FIRST_EXPONENT = 0.5


def coin_betting_bound(
    comparator, squared_gradient_sum, epsilon=1.0, Z=1.0, squared_slope_sum=None
) -> jax.Array:
    r"""``thm:fullonedolo`` derived for every ``Z``: the regret of ``coin_betting(epsilon, Z)``.

    For every constant fraction ``v`` in [0, 1/2] the follower of the regularized leader has

    .. math::
       \log\frac{\mathrm{Wealth}_T}{\epsilon} \ge v |G_T| - b v^2 - \tfrac{1}{2Z}\log(1 + Q),
       \qquad b = \tfrac{Z}{2}(5 + Q) + \textstyle\sum_t g_t^2,

    with :math:`Q = \sum_t z_t^2 \le 4\sum_t g_t^2`: the regularizer at ``v``, the leader's
    stability, and :math:`\log(1 - x) \ge -x - x^2`. The best ``v`` makes the first two terms
    :math:`\lambda = G^2 / 4b` up to :math:`|G| = b`, and :math:`|G|/2 - b/4` beyond. The paper's
    closed form, ``thm_fullonedolo``, is larger.

    Args:
      comparator: ``u``, from the starting point.
      squared_gradient_sum: :math:`\sum_t g_t^2`, or more.
      epsilon: initial wealth.
      Z: strength of the regularizer.
      squared_slope_sum: ``Q``, in the bettor's state; :math:`4\sum_t g_t^2` unless it is given.
    """
    slopes = 4 * squared_gradient_sum if squared_slope_sum is None else squared_slope_sum
    curvature = Z * (5 + slopes) / 2 + squared_gradient_sum

    def deviation(exponent):
        inside = exponent <= curvature / 4
        root = jnp.sqrt(curvature * exponent)
        return (
            jnp.where(inside, 2 * root, 2 * exponent + curvature / 2),
            jnp.where(inside, root / exponent, 2.0),
        )

    return _regret(comparator, epsilon, jnp.log1p(slopes) / (2 * Z), deviation)


def kt_betting_bound(comparator, coin_size_sum, epsilon=1.0) -> jax.Array:
    r"""Orabona and Pal (NeurIPS 2016), Corollary 5, derived for :math:`n = \sum_t |g_t|` in place
    of ``T``: the regret of ``kt_betting(epsilon)``, from

    .. math::
       \mathrm{Wealth}_T \ge \epsilon\,\Psi \ge
       \frac{\epsilon}{\sqrt{1 + \pi n / 2}} \exp\frac{G_T^2}{2(n + 1)}.

    The first inequality is at ``kt_betting``. At :math:`G = 0`, by duplication,
    :math:`\Psi = \Gamma(\frac{n+1}{2}) / (\sqrt\pi\, \Gamma(\frac n2 + 1))`, which is at least
    :math:`(1 + \pi n/2)^{-1/2}` (Watson 1959). The second derivative of :math:`\log\Psi` in ``G``
    is :math:`\frac14(\psi'(a + \frac12) + \psi'(b + \frac12)) \ge \frac12\psi'(\frac{n+1}{2}) \ge
    \frac{1}{n+1}`, since the trigamma function is convex and above :math:`1/z`.

    It is at most :math:`\epsilon + |u| \sqrt{(n+1) \log(1 + (n+1)(1 + \pi n/2) u^2/\epsilon^2)}`.

    Args:
      comparator: ``u``, from the starting point.
      coin_size_sum: :math:`\sum_t |g_t|`, in the bettor's state; ``T`` is more.
      epsilon: initial wealth.
    """
    count = 1 + jnp.asarray(coin_size_sum)

    def deviation(exponent):
        root = jnp.sqrt(2 * count * exponent)
        return root, root / (2 * exponent)

    return _regret(comparator, epsilon, jnp.log1p(jnp.pi / 2 * (count - 1)) / 2, deviation)


def freegrad_betting_bound(comparator, squared_gradient_sum, epsilon=1.0) -> jax.Array:
    r"""Mhammedi and Koolen (COLT 2020): the regret of ``freegrad_betting(epsilon)``, from

    .. math::
       \mathrm{Wealth}_T \ge \frac{\epsilon}{\sqrt V} e^\lambda, \qquad
       \lambda = \frac{G_T^2}{2 V + 2 |G_T|}, \qquad V = 1 + \textstyle\sum_t g_t^2,

    that is :math:`|G_T| = \lambda + \sqrt{\lambda^2 + 2 V \lambda}`. It is at most
    :math:`\epsilon + |u|(\Lambda + \sqrt{\Lambda^2 + 2 V \Lambda})` with
    :math:`\Lambda = \log(\sqrt e + |u| (V + \tfrac{11}{8}\sqrt V) / \epsilon)`.

    Args:
      comparator: ``u``, from the starting point.
      squared_gradient_sum: :math:`\sum_t g_t^2`, or more.
      epsilon: initial wealth.
    """
    variance = 1 + jnp.asarray(squared_gradient_sum)

    def deviation(exponent):
        root = jnp.sqrt(exponent**2 + 2 * variance * exponent)
        return exponent + root, 1 + (exponent + variance) / root

    return _regret(comparator, epsilon, jnp.log(variance) / 2, deviation)


def constraint_cost(comparator, radius=1.0, withheld_coin_size_sum=jnp.inf) -> jax.Array:
    r"""Cutkosky (COLT 2019): what ``constrained_bets(bettor, radius)`` adds to the bettor's regret,

    .. math:: \min\Big[\tfrac13\Big(\frac{|u|^3}{r^2} - r\Big),\ (|u| - r) H\Big]

    for :math:`|u| > r`, and nothing otherwise. The proof is at ``constrained_bets``.

    Args:
      comparator: ``u``, from the starting point.
      radius: ``r``.
      withheld_coin_size_sum: ``H``, the sizes of the coins that the bettor was not told.
    """
    ratio = jnp.maximum(jnp.abs(jnp.asarray(comparator)) / radius, 1)
    withheld = jnp.where(ratio > 1, (ratio - 1) * withheld_coin_size_sum, 0)
    return radius * jnp.minimum((ratio**3 - 1) / 3, withheld)


def _regret(comparator, epsilon, log_price, deviation):
    r"""The regret bound for :math:`\log(\mathrm{Wealth}_T/\epsilon) \ge \lambda - p`, where the sum
    of the coins is :math:`|G_T| = x(\lambda)` and ``x`` is increasing and concave.

    A tangent of ``x`` at any :math:`\Lambda` lies above it, so with :math:`s = |u| x'(\Lambda)` the
    supremum is at most

    .. math::
       |u| x(\Lambda) + \sup_{\lambda \ge 0}\, s (\lambda - \Lambda) - \epsilon e^{\lambda - p},

    attained at :math:`\lambda = \max(0, \log(s/\epsilon) + p)`. It is exact where that is
    :math:`\Lambda`, so :math:`\Lambda` follows it for a few steps. Every one of them is a bound,
    converged or not; the least is returned.

    Args:
      log_price: ``p``.
      deviation: the pair :math:`x(\lambda), x'(\lambda)`.
    """
    size = jnp.abs(jnp.asarray(comparator))
    tangent = jnp.maximum(FIRST_EXPONENT, jnp.log(size / epsilon) + log_price)
    best = jnp.full_like(tangent, jnp.inf)
    for _ in range(1 + TANGENT_STEPS):
        total, slope = deviation(tangent)
        # In units of epsilon, in which sizes and the exponential are of the same order.
        exponent = jnp.maximum(0, jnp.log(size / epsilon) + jnp.log(slope) + log_price)
        line = size * (total + slope * (exponent - tangent))
        best = jnp.minimum(best, epsilon + line - epsilon * jnp.exp(exponent - log_price))
        tangent = jnp.maximum(FIRST_EXPONENT, exponent)
    return best
