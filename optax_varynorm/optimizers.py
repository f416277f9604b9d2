"""Ready-made optimizers: a norm, and the paper's algorithms around it."""

import optax

from optax_varynorm import _arguments
from optax_varynorm.coin_betting import coin_betting
from optax_varynorm.domains import Domain
from optax_varynorm.ftrl import ftrl_step
from optax_varynorm.norm_library import (
    diagonal_norm,
    full_matrix_norm,
    full_matrix_root_norm,
    lp_norm,
)
from optax_varynorm.norms import VaryingNorm
from optax_varynorm.reductions import project, scale_by_coin_betting, with_varying_norm


def fixed_norm(
    p=2.0, epsilon=1.0, lipschitz=None, domain: Domain | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""``eqn:constantnorm``: regret :math:`\tilde O(\|u\|_p \sqrt{\sum_t \|g_t\|_q^2})`.

    O(d) a round.

    Args:
      p: which norm, in (1, 2].
      epsilon: the largest regret against the starting point, in units of loss.
      lipschitz: the largest l_q norm of a gradient, ``1/p + 1/q = 1``. Gradients of dual norm
        above one (which only longer ones have) are clipped and counted.
      domain: convex set to stay in; the whole space if ``None``. The surrogate loss is the tight
        one for ``p = 2`` and the paper's otherwise.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.fixed_norm()
    >>> state = optimizer.init(jnp.zeros(2))
    """
    if domain is not None and not _arguments.is_known(p):
        raise ValueError(
            "`fixed_norm` on a domain must know `p` to choose its projection. Keep it static: "
            "`optax.inject_hyperparams(fixed_norm, static_args=('p',))`."
        )
    return _learn(lp_norm(p, lipschitz), epsilon, domain)


def diagonal(
    epsilon=1.0, lipschitz=None, domain: Domain | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""The diagonal of ``full_matrix``: :math:`\tilde O(\sqrt{d \sum_t \sum_j g_{t,j}^2 u_j^2})`.

    Best when coordinates differ in scale and ``d`` is too large for a matrix. O(d) a round.

    Args:
      epsilon: the largest regret against the starting point, in units of loss.
      lipschitz: the largest l_2 norm of a gradient. Gradients of dual norm
        above one (which only longer ones have) are clipped and counted.
      domain: convex set to stay in; the whole space if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.diagonal()
    >>> state = optimizer.init(jnp.zeros(2))
    """
    return _learn(diagonal_norm(lipschitz), epsilon, domain)


def full_matrix(
    epsilon=1.0, lipschitz=None, domain: Domain | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""``thm:fullmatrix``: regret :math:`\tilde O(\sqrt{r \sum_t \langle g_t, u\rangle^2})`.

    ``r`` is the rank of the gradients. Best when they stay in few directions. O(d^2) a round.

    Args:
      epsilon: the largest regret against the starting point, in units of loss.
      lipschitz: the largest l_2 norm of a gradient. Gradients of dual norm
        above one (which only longer ones have) are clipped and counted.
      domain: convex set to stay in; the whole space if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.full_matrix(domain=vn.l2_ball(1.0))
    >>> state = optimizer.init(jnp.zeros(2))
    """
    return _learn(full_matrix_norm(lipschitz), epsilon, domain)


def full_matrix_adagrad(
    epsilon=1.0, lipschitz=None, domain: Domain | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""``thm:adagrad``: full-matrix AdaGrad with the best learning rate, learned on the fly.

    Regret :math:`\tilde O\big(\sqrt{\langle u, G_T^{1/2} u\rangle \mathrm{tr}\,G_T^{1/2}}\big)`.
    Best when gradients are nearly, but not quite, in few directions. O(d^2) a round, with a
    factor of 13 in float32 and 24 in float64 for the nodes of a quadrature.

    Args:
      epsilon: the largest regret against the starting point, in units of loss.
      lipschitz: the largest l_2 norm of a gradient. Gradients of dual norm
        above one (which only longer ones have) are clipped and counted.
      domain: convex set to stay in; the whole space if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.full_matrix_adagrad(epsilon=0.1)
    >>> state = optimizer.init(jnp.zeros(2))
    """
    return _learn(full_matrix_root_norm(lipschitz), epsilon, domain)


def _learn(norm: VaryingNorm, epsilon, domain) -> optax.GradientTransformationExtraArgs:
    """Algorithm 1 (``alg:1dred``), and Algorithm 2 (``alg:varynorm``) around it on a domain."""
    if domain is None:
        return with_varying_norm(norm, scale_by_coin_betting(ftrl_step(), coin_betting(epsilon)))
    if not isinstance(domain, Domain):
        raise ValueError(f"`domain` must be a domain such as `vn.l2_ball(1.0)`, not {domain!r}.")
    # The paper's surrogate doubles all regret, so half the wealth keeps the promise of epsilon.
    surrogate, wealth = ("tight", epsilon) if norm.is_quadratic else ("paper", epsilon / 2)
    learner = scale_by_coin_betting(ftrl_step(), coin_betting(wealth))
    return with_varying_norm(norm, project(domain, learner, surrogate))
