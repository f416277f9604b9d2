"""Ready-made optimizers: a norm, and the paper's algorithms around it."""

from collections.abc import Callable

import jax.numpy as jnp
import optax

from optax_varynorm import _arguments, _precision
from optax_varynorm._empty import nothing, size_of
from optax_varynorm.coin_betting import coin_betting
from optax_varynorm.domains import Domain
from optax_varynorm.ftrl import ftrl_step
from optax_varynorm.learners import Certified, slack_of
from optax_varynorm.norm_library import (
    diagonal_norm,
    full_matrix_norm,
    full_matrix_root_norm,
    lp_norm,
)
from optax_varynorm.norms import VaryingNorm
from optax_varynorm.reductions import (
    combine,
    grounded,
    project,
    scale_by_coin_betting,
    with_varying_norm,
)
from optax_varynorm.reductions.per_coordinate import coordinate_learner_of

# From a wealth to a one-dimensional learner that starts with it.
ScaleLearner = Callable[..., optax.GradientTransformation]

# `varynorm` takes a full matrix along while there are at most this many parameters.
MOST_PARAMETERS_WITH_A_MATRIX = 512


def varynorm(
    epsilon=1.0,
    lipschitz=None,
    domain: Domain | None = None,
    scale_learner: ScaleLearner | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Nothing to set: ``fixed_norm``, ``diagonal`` and ``full_matrix``, combined.

    The regret is the least of theirs, plus ``epsilon`` for each of the others: that of the whole
    against the starting point is at most three times ``epsilon``, while nothing is clipped
    (``docs/guarantee.md`` has the rest). The matrix takes part while there
    are at most 512 parameters, which is decided by their shapes; beyond, it would cost more than
    it learns, and the other two remain. O(d^2) a round, and O(d) beyond 512.

    Args:
      epsilon: the largest regret of each learner against the starting point, in units of loss,
        while nothing is clipped.
      lipschitz: the largest l_2 norm of a gradient, if it is known.
      domain: convex set to stay in; the whole space if ``None``. The points of the combination are
        projected in the Euclidean norm.
      scale_learner: the bettor, a function of epsilon such as ``vn.freegrad_betting``;
        ``vn.coin_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.varynorm()
    >>> state = optimizer.init(jnp.zeros(2))
    """
    norms = (
        lp_norm(2.0, lipschitz),
        diagonal_norm(lipschitz, start="coordinate"),
        full_matrix_norm(lipschitz, start="coordinate"),
    )
    fixed, diagonal, matrix = (
        _learn(norm, epsilon, None, scale_learner, keep_direction)
        for norm, keep_direction in zip(norms, (True, False, True), strict=True)
    )
    return grounded(_on(domain, combine(fixed, diagonal, if_small(matrix))))


def fixed_norm(
    p=2.0,
    epsilon=1.0,
    lipschitz=None,
    domain: Domain | None = None,
    scale_learner: ScaleLearner | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""``eqn:constantnorm``: regret :math:`\tilde O(\|u\|_p \sqrt{\sum_t \|g_t\|_q^2})`.

    O(d) a round.

    Args:
      p: which norm, in (1, 2].
      epsilon: the largest regret against the starting point, in units of loss, while nothing is
        clipped.
      lipschitz: the largest l_q norm of a gradient, ``1/p + 1/q = 1``, if it is known. Gradients of
        dual norm above one (which only longer ones have) are clipped and counted. With ``None``
        the longest so far stands for it.
      domain: convex set to stay in; the whole space if ``None``. The surrogate loss is the tight
        one for ``p = 2`` and the paper's otherwise.
      scale_learner: the bettor, a function of epsilon such as ``vn.freegrad_betting``;
        ``vn.coin_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.fixed_norm()
    >>> state = optimizer.init(jnp.zeros(2))
    """
    if domain is not None and not _arguments.is_known(p):
        raise ValueError(
            "`fixed_norm` on a domain must know `p` to choose its projection. Keep it static: "
            "`optax.inject_hyperparams(fixed_norm, static_args=('p',))`."
        )
    return grounded(_learn(lp_norm(p, lipschitz), epsilon, domain, scale_learner))


def diagonal(
    epsilon=1.0,
    lipschitz=None,
    domain: Domain | None = None,
    scale_learner: ScaleLearner | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""The diagonal of ``full_matrix``: :math:`\tilde O(\sqrt{d \sum_t \sum_j g_{t,j}^2 u_j^2})`.

    Best when coordinates differ in scale and ``d`` is too large for a matrix. O(d) a round.

    Args:
      epsilon: the largest regret against the starting point, in units of loss, while nothing is
        clipped.
      lipschitz: the largest l_2 norm of a gradient, if it is known. Gradients of dual norm
        above one (which only longer ones have) are clipped and counted. With ``None`` the
        gradients so far stand for it: on the whole space each coordinate's own, so that units do
        not matter (within a factor of 10,000), and on a domain the longest.
      domain: convex set to stay in; the whole space if ``None``.
      scale_learner: the bettor, a function of epsilon such as ``vn.freegrad_betting``;
        ``vn.coin_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.diagonal()
    >>> state = optimizer.init(jnp.zeros(2))
    """
    norm = diagonal_norm(lipschitz, start=_start(domain))
    return grounded(_learn(norm, epsilon, domain, scale_learner, keep_direction=False))


def full_matrix(
    epsilon=1.0,
    lipschitz=None,
    domain: Domain | None = None,
    scale_learner: ScaleLearner | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""``thm:fullmatrix``: regret :math:`\tilde O(\sqrt{r \sum_t \langle g_t, u\rangle^2})`.

    ``r`` is the rank of the gradients. Best when they stay in few directions. O(d^2) a round.

    Args:
      epsilon: the largest regret against the starting point, in units of loss, while nothing is
        clipped.
      lipschitz: the largest l_2 norm of a gradient, if it is known. Gradients of dual norm
        above one (which only longer ones have) are clipped and counted. With ``None`` the
        gradients so far stand for it: on the whole space each coordinate's own, so that units do
        not matter (within a factor of 10,000), and on a domain the longest.
      domain: convex set to stay in; the whole space if ``None``.
      scale_learner: the bettor, a function of epsilon such as ``vn.freegrad_betting``;
        ``vn.coin_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.full_matrix(domain=vn.l2_ball(1.0))
    >>> state = optimizer.init(jnp.zeros(2))
    """
    norm = full_matrix_norm(lipschitz, start=_start(domain))
    return grounded(_learn(norm, epsilon, domain, scale_learner))


def full_matrix_adagrad(
    epsilon=1.0,
    lipschitz=None,
    domain: Domain | None = None,
    scale_learner: ScaleLearner | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""``thm:adagrad``: full-matrix AdaGrad with the best learning rate, learned on the fly.

    Regret :math:`\tilde O\big(\sqrt{\langle u, G_T^{1/2} u\rangle \mathrm{tr}\,G_T^{1/2}}\big)`.
    Best when gradients are nearly, but not quite, in few directions. O(d^2) a round, with a
    factor of 11 in float32 and 24 in float64 for the nodes of a quadrature.

    Args:
      epsilon: the largest regret against the starting point, in units of loss, while nothing is
        clipped.
      lipschitz: the largest l_2 norm of a gradient, if it is known. Gradients of dual norm
        above one (which only longer ones have) are clipped and counted. With ``None`` the
        longest so far stands for it.
      domain: convex set to stay in; the whole space if ``None``.
      scale_learner: the bettor, a function of epsilon such as ``vn.freegrad_betting``;
        ``vn.coin_betting`` if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> optimizer = vn.full_matrix_adagrad(epsilon=0.1)
    >>> state = optimizer.init(jnp.zeros(2))
    """
    return grounded(_learn(full_matrix_root_norm(lipschitz), epsilon, domain, scale_learner))


def choose_by_size(
    with_matrix: optax.GradientTransformation, without: optax.GradientTransformation
) -> Certified:
    """One learner while there are few parameters, the other beyond: by their shapes, statically."""

    def chosen(params):
        return with_matrix if is_small(size_of(params)) else without

    def init(params):
        return chosen(params).init(params) if size_of(params) else nothing()

    def update(updates, state, params=None, **extra_args):
        if not size_of(updates):
            return updates, state
        return chosen(updates).update(updates, state, params, **extra_args)

    def slack(state, comparator, *geometry):
        return slack_of(chosen(comparator))(state, comparator, *geometry)

    def coordinate_learner(size):
        return coordinate_learner_of(with_matrix if is_small(size) else without, size)

    bare = optax.GradientTransformationExtraArgs(init, update)
    return Certified(bare, slack, coordinate_learner=coordinate_learner)


def is_small(size: int) -> bool:
    """Whether a matrix takes part."""
    return 0 < size <= MOST_PARAMETERS_WITH_A_MATRIX


def if_small(learner: optax.GradientTransformation) -> Certified:
    """A learner that takes part while there are few parameters, and has no state beyond."""

    def init(params):
        if is_small(size_of(params)):
            return learner.init(params)
        return () if size_of(params) else nothing()

    def update(updates, state, params=None, **extra_args):
        if not is_small(size_of(updates)):
            return optax.tree.zeros_like(updates), state
        return learner.update(updates, state, params, **extra_args)

    def slack(state, comparator, *geometry):
        if is_small(size_of(comparator)):
            return slack_of(learner)(state, comparator, *geometry)
        # It can only stay where it is.
        square = _precision.inner(comparator, comparator)
        return jnp.where(square > 0, jnp.inf, jnp.zeros_like(square))

    return Certified(optax.GradientTransformationExtraArgs(init, update), slack)


def _learn(
    norm: VaryingNorm, epsilon, domain, scale_learner, keep_direction: bool = True
) -> optax.GradientTransformation:
    """Algorithm 1 (``alg:1dred``), and Algorithm 2 (``alg:varynorm``) around it on a domain."""
    scale_learner = coin_betting if scale_learner is None else scale_learner
    direction_learner = ftrl_step(keep_direction)
    if domain is None:
        learner = scale_by_coin_betting(direction_learner, scale_learner(epsilon))
        return with_varying_norm(norm, learner)
    _require_domain(domain)
    # The paper's surrogate doubles all regret, so half the wealth keeps the promise of epsilon.
    surrogate, wealth = ("tight", epsilon) if norm.is_quadratic else ("paper", epsilon / 2)
    learner = scale_by_coin_betting(direction_learner, scale_learner(wealth))
    return with_varying_norm(norm, project(domain, learner, surrogate))


def _on(domain, learner) -> optax.GradientTransformation:
    """A learner with norms of its own on a domain, projected in the Euclidean norm."""
    if domain is None:
        return learner
    _require_domain(domain)
    return with_varying_norm(lp_norm(2.0), project(domain, learner), clip=False)


def _start(domain) -> str:
    """A norm that starts coordinate by coordinate is none yet where no gradient was seen."""
    return "coordinate" if domain is None else "isotropic"


def _require_domain(domain) -> None:
    if not isinstance(domain, Domain):
        raise ValueError(f"`domain` must be a domain such as `vn.l2_ball(1.0)`, not {domain!r}.")
