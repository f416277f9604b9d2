r"""The right-hand side of every bound on Algorithms 1 and 2, one function for each of its labels.

Each constant was derived again. Where the paper's holds, it stands; where it does not, the
docstring says what replaced it. ``S_T`` is :math:`\sum_t \|g_t\|_{t-1,\star}^2` of the gradients
the FTRL layer received (``squared_dual_norm_sum`` in its state), and a comparator ``u`` is measured
from the starting point: the bounds take its norm :math:`\|u - w_1\|_{T-1}`. Everything is
elementwise, so arrays of comparators or of rounds are fine.
"""

import jax
import jax.numpy as jnp

# What a step from the domain to the whole space costs: the proof of thm:varynorm ends in
# <g, w - u> <= 2 <ghat, v - u>, and the tight surrogate in <g, w - u> <= <gtilde, v - u>.
SURROGATE_FACTOR = {"paper": 2.0, "tight": 1.0}


def thm_ftrl(final_regularizer, squared_dual_norms, strong_convexities) -> jax.Array:
    r"""``thm:ftrl``: :math:`\psi_{T-1}(u) + \tfrac12\sum_t \|g_t\|_{t-1,\star}^2/\sigma_{t-1}`.

    Args:
      final_regularizer: :math:`\psi_{T-1}(u)`.
      squared_dual_norms: :math:`\|g_t\|_{t-1,\star}^2` for each round.
      strong_convexities: :math:`\sigma_{t-1}` of :math:`\psi_{t-1}` for each round.
    """
    ratios = jnp.asarray(squared_dual_norms) / jnp.asarray(strong_convexities)
    return final_regularizer + 0.5 * jnp.sum(ratios)


def thm_constrainedftrl(
    comparator_norm, squared_dual_norm_sum, strong_convexity=1.0, squared_dual_norm_sum_before=None
) -> jax.Array:
    r"""``thm:constrainedftrl``, for a comparator inside the unit ball of :math:`\|\cdot\|_{T-1}`:

    .. math:: \tfrac{1}{\sqrt\sigma}\big(\|u\|_{T-1}^2 \sqrt{1 + S_{T-1}} + \sqrt{S_T}\big).

    ``S_{T-1}`` is taken to be ``S_T``, which is larger, unless it is given.
    """
    before = _or(squared_dual_norm_sum_before, squared_dual_norm_sum)
    penalty = jnp.square(comparator_norm) * jnp.sqrt(1 + before)
    return (penalty + jnp.sqrt(squared_dual_norm_sum)) / jnp.sqrt(strong_convexity)


def thm_fullonedolo(comparator, squared_gradient_sum, epsilon=1.0) -> jax.Array:
    r"""``thm:fullonedolo``, the regret of ``coin_betting(epsilon, Z=1)``. With
    :math:`\Lambda = \log(e + |u|(7 + 4\sum g_t^2)/\epsilon)`:

    .. math:: \epsilon + 2|u|\max\Big[\sqrt{(3 + 3\textstyle\sum g_t^2)\Lambda},\ 2\Lambda\Big].
    """
    size = jnp.abs(jnp.asarray(comparator))
    logarithm = jnp.log(jnp.e + size * (7 + 4 * squared_gradient_sum) / epsilon)
    root = jnp.sqrt((3 + 3 * squared_gradient_sum) * logarithm)
    return epsilon + 2 * size * jnp.maximum(root, 2 * logarithm)


def coin_betting_bound(
    comparator, squared_gradient_sum, epsilon=1.0, Z=1.0, squared_slope_sum=None
) -> jax.Array:
    r"""``thm:fullonedolo`` derived for every ``Z``, the regret of ``coin_betting(epsilon, Z)``.

    For every constant fraction ``v`` in [0, 1/2] the follower of the regularized leader has

    .. math::
       \log\frac{\mathrm{Wealth}_T}{\epsilon} \ge v |G_T| - b v^2 - \tfrac{1}{2Z}\log(1 + Q),
       \qquad b = \tfrac{Z}{2}(5 + Q) + \textstyle\sum_t g_t^2,

    with :math:`Q = \sum_t z_t^2 \le 4\sum_t g_t^2`. The conjugate in :math:`G_T`, and
    :math:`v = \min(\frac12, \sqrt{\Lambda/b})` with
    :math:`\Lambda = \log(e + |u| (1 + Q)^{1/2Z} \max(2, \sqrt b) / (e \epsilon))`, give

    .. math:: \epsilon + |u|\big(\max[\sqrt{b\Lambda},\ 2\Lambda] + \sqrt{b\Lambda}\big).

    For ``Z = 1`` it is never above ``thm_fullonedolo``.

    Args:
      comparator: ``u``, from the starting point.
      squared_gradient_sum: :math:`\sum_t g_t^2`.
      epsilon: initial wealth.
      Z: strength of the regularizer.
      squared_slope_sum: ``Q``, in the bettor's state; :math:`4\sum_t g_t^2` unless it is given.
    """
    size = jnp.abs(jnp.asarray(comparator))
    slopes = _or(squared_slope_sum, 4 * squared_gradient_sum)
    curvature = Z * (5 + slopes) / 2 + squared_gradient_sum
    price = jnp.log1p(slopes) / (2 * Z) + jnp.log(jnp.maximum(2.0, jnp.sqrt(curvature))) - 1
    logarithm = jnp.logaddexp(jnp.ones_like(price), jnp.log(size / epsilon) + price)
    root = jnp.sqrt(curvature * logarithm)
    return epsilon + size * (jnp.maximum(root, 2 * logarithm) + root)


def kt_betting_bound(comparator, coin_size_sum, epsilon=1.0) -> jax.Array:
    r"""Orabona and Pal (NeurIPS 2016), Corollary 5, derived for :math:`n = \sum_t |g_t|` in place
    of ``T``. The regret of ``kt_betting(epsilon)`` is at most, with :math:`c = 1 + \pi n / 2`,

    .. math::
       \epsilon\Big(1 - \frac{1}{\sqrt c}\Big)
       + |u| \sqrt{(n + 1) \log\Big(1 + \frac{c (n + 1) u^2}{\epsilon^2}\Big)}.

    The wealth is at least :math:`\epsilon\Psi` (see ``kt_betting``). By duplication
    :math:`\Psi = \Gamma(\frac{n+1}{2}) / (\sqrt\pi\, \Gamma(\frac n2 + 1)) \ge 1/\sqrt c` at
    :math:`G = 0` (Watson 1959), and the second derivative of :math:`\log\Psi` in ``G`` is
    :math:`\frac14(\psi'(a + \frac12) + \psi'(b + \frac12)) \ge \frac12\psi'(\frac{n+1}{2}) \ge
    \frac{1}{n+1}`, since the trigamma function is convex and above :math:`1/z`. Hence
    :math:`\mathrm{Wealth}_T \ge \epsilon\, c^{-1/2} \exp\frac{G^2}{2(n + 1)}`, whose conjugate is
    at most :math:`|u|\sqrt{(n + 1)\log(1 + \ldots)} - \epsilon / \sqrt c` (their Lemma 18).

    Args:
      comparator: ``u``, from the starting point.
      coin_size_sum: :math:`\sum_t |g_t|`, in the bettor's state; ``T`` is an upper bound.
      epsilon: initial wealth.
    """
    size = jnp.abs(jnp.asarray(comparator))
    count = 1 + jnp.asarray(coin_size_sum)
    spread = 1 + jnp.pi / 2 * (count - 1)
    exponent = 2 * jnp.log(size / epsilon) + jnp.log(spread) + jnp.log(count)
    logarithm = jnp.logaddexp(jnp.zeros_like(exponent), exponent)
    return epsilon * (1 - 1 / jnp.sqrt(spread)) + size * jnp.sqrt(count * logarithm)


def freegrad_betting_bound(comparator, squared_gradient_sum, epsilon=1.0) -> jax.Array:
    r"""Mhammedi and Koolen (COLT 2020), Theorem 6, with a tighter conjugate. With
    :math:`V = 1 + \sum_t g_t^2` and
    :math:`\Lambda = \log(\sqrt e + |u| (V + \tfrac{11}{8}\sqrt V) / \epsilon)`, the regret of
    ``freegrad_betting(epsilon)`` is at most

    .. math:: \epsilon + |u| \big(\Lambda + \sqrt{\Lambda^2 + 2 V \Lambda}\big).

    The wealth is at least :math:`\frac{\epsilon}{\sqrt V} e^\lambda`, where
    :math:`|G| = x(\lambda) = \lambda + \sqrt{\lambda^2 + 2 V\lambda}` solves
    :math:`\lambda = G^2 / (2 V + 2 |G|)`. As ``x`` is concave, its tangent at :math:`\Lambda` gives
    :math:`|u| x(\lambda) - \frac{\epsilon}{\sqrt V} e^\lambda \le |u| x(\Lambda)` for all
    :math:`\lambda`, provided :math:`|u| x'(\Lambda) \le \frac{\epsilon}{\sqrt V} e^\Lambda`; and
    :math:`x'(\Lambda) \le x'(\tfrac12) \le \sqrt V + \tfrac{11}{8}` for
    :math:`\Lambda \ge \tfrac12`, :math:`V \ge 1`.

    Args:
      comparator: ``u``, from the starting point.
      squared_gradient_sum: :math:`\sum_t g_t^2`.
      epsilon: initial wealth.
    """
    size = jnp.abs(jnp.asarray(comparator))
    variance = 1 + jnp.asarray(squared_gradient_sum)
    slope = variance + 11 / 8 * jnp.sqrt(variance)
    logarithm = jnp.log(jnp.exp(0.5) + size * slope / epsilon)
    return epsilon + size * (logarithm + jnp.sqrt(logarithm**2 + 2 * variance * logarithm))


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


def thm_1dred(
    comparator_norm,
    squared_dual_norm_sum,
    epsilon=1.0,
    strong_convexity=1.0,
    squared_dual_norm_sum_before=None,
) -> jax.Array:
    r"""``thm:1dred``, Algorithm 1 with coin betting: the bettor's regret against
    :math:`\|u\|_{T-1}` plus :math:`\tfrac{2}{\sqrt\sigma}\|u\|_{T-1}\sqrt{1 + S_{T-1}}`.

    The bettor's coins satisfy :math:`\sum s_t^2 \le S_T`. Its logarithm is that of
    ``thm:fullonedolo`` (7 + 4 S), where the paper's proof writes 6 + 11 S.
    """
    before = _or(squared_dual_norm_sum_before, squared_dual_norm_sum)
    direction = 2 * comparator_norm * jnp.sqrt((1 + before) / strong_convexity)
    return thm_fullonedolo(comparator_norm, squared_dual_norm_sum, epsilon) + direction


def thm_varynorm(
    comparator_norm,
    squared_dual_norm_sum,
    epsilon=1.0,
    strong_convexity=1.0,
    surrogate="tight",
    squared_dual_norm_sum_before=None,
) -> jax.Array:
    """``thm:varynorm``, Algorithm 2 on any convex domain: ``thm:1dred`` for the surrogates.

    With ``surrogate="paper"`` the whole of it is doubled: the paper's proof arrives at that factor
    and its explicit bound drops it.
    """
    return SURROGATE_FACTOR[surrogate] * thm_1dred(
        comparator_norm,
        squared_dual_norm_sum,
        epsilon,
        strong_convexity,
        squared_dual_norm_sum_before,
    )


def thm_fullmatrixdetail(
    comparator_norm, rank, rounds, epsilon=1.0, strong_convexity=1.0, surrogate="tight"
) -> jax.Array:
    r"""``thm:fullmatrixdetail``: ``thm:varynorm`` with :math:`S_T \le r \log(T + 1)`.

    Holds for ``full_matrix_norm(L)`` and :math:`\|g_t\|_2 \le L`, whatever ``L``.

    Args:
      comparator_norm: :math:`\|u\|_T = \sqrt{2 L^2\|u\|_2^2 + \sum_t\langle g_t, u\rangle^2}`.
      rank: rank of the gradients.
      rounds: ``T``.
    """
    dtype = jnp.result_type(float)
    squared_dual_norm_sum = jnp.asarray(rank, dtype) * jnp.log1p(jnp.asarray(rounds, dtype))
    return thm_varynorm(
        comparator_norm,
        squared_dual_norm_sum,
        epsilon,
        jnp.minimum(strong_convexity, 1.0),
        surrogate,
    )


def thm_adagraddetail(
    comparator_norm, root_trace, epsilon=1.0, lipschitz=1.0, surrogate="tight"
) -> jax.Array:
    r"""``thm:adagraddetail``: ``thm:varynorm`` with :math:`S_T \le 2\,\mathrm{tr}(G_T^{1/2})/L`.

    Holds for ``full_matrix_root_norm(L)`` and :math:`\|g_t\|_2 \le L`.

    Args:
      comparator_norm: :math:`\|u\|_T`, or its upper bound
        :math:`\sqrt{L^2\|u\|_2^2 + L\, u^\top G_T^{1/2}u}`.
      root_trace: :math:`\mathrm{tr}(G_T^{1/2})`, the sum of the gradients' singular values.
    """
    return thm_varynorm(comparator_norm, 2 * root_trace / lipschitz, epsilon, 1.0, surrogate)


def _or(value, default):
    return default if value is None else value
