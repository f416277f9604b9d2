"""A search for what is not true of a sequence of norms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from optax_varynorm import _precision, complaints
from optax_varynorm.norms import VaryingNorm, dual_norm

# Duality maps are compared at so many points only: without a closed form each costs a solve.
DUALITY_POINTS = 16


def check_norm(
    norm: VaryingNorm,
    gradients: optax.Updates,
    features: optax.Params | None = None,
    *,
    samples: int = 256,
    seed: int = 0,
    tolerance: float | None = None,
) -> None:
    r"""Raise ``ValueError`` if these are not norms, or not the norms that ``thm:varynorm`` needs.

    In every round of a stream of gradients, at random points and pairs of points, dense and sparse:
    homogeneity, symmetry, positivity, the triangle inequality, growth from round to round, strong
    convexity with the stated sigma; in the end, that a zero gradient changes nothing and that the
    duality maps belong together. The first that fails is reported with the vectors that show it.
    What passes is not proved: try streams like those to come.

    It is for debugging: O(samples) norms a round. In float64 (``jax.enable_x64``) it sees much
    smaller violations.

    Args:
      norm: any norms. Of those that learn their units from gradients or features, the coordinates
        known so far are checked. Strong convexity is not if ``norm.strong_convexity`` is ``None``.
      gradients: a tree like the parameters with one more axis, the rounds.
      features: those of a linear model in the same rounds, for norms that observe them.
      samples: how many points and pairs.
      seed: of the points.
      tolerance: the relative excess that rounding explains; 1e-3 in float32 and 1e-7 in float64 if
        ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> vn.check_norm(vn.lp_norm(1.5), jnp.array([[0.6, -0.8], [0.0, 1.0]]))
    """
    if (norm.announce is not None) != (features is not None):
        raise ValueError(
            "`check_norm` needs `features` for a norm that observes them, and for no other."
        )
    dtype = _precision.working_dtype(gradients)
    gradients = _precision.cast(gradients, dtype)
    if tolerance is None:
        tolerance = 1e-3 if dtype == jnp.float32 else 1e-7
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], gradients))
    stream = np.asarray(jax.vmap(lambda g: ravel_pytree(g)[0])(gradients))
    sampled = jax.tree.map(lambda a: jnp.asarray(a, dtype), _draw(stream, samples, seed))
    measured = jax.jit(lambda *data: _measure(norm, unravel, *data))(gradients, features, sampled)
    sampled, measured = jax.tree.map(np.asarray, (sampled, measured))
    complaints.raise_the_first(norm, sampled, measured, tolerance)


def _draw(stream, samples, seed) -> complaints.Sampled:
    rng = np.random.default_rng(seed)
    shape = (samples, stream.shape[1])

    def dense():
        return rng.normal(size=shape)

    def sparse():
        return dense() * (rng.random(shape) < 2 / max(shape[1], 2))

    def signs():
        return rng.choice([-1.0, 1.0], shape)

    def gradients():
        return stream[rng.integers(len(stream), size=samples)] * rng.normal(size=(samples, 1))

    def mixed():
        kinds = np.stack([dense(), sparse(), signs(), gradients()])
        return kinds[rng.integers(len(kinds), size=samples), np.arange(samples)]

    x = mixed()
    # Half of the pairs differ in few coordinates: there a norm that is flat somewhere shows it.
    y = np.where(rng.random((samples, 1)) < 0.5, mixed(), x + sparse())
    return complaints.Sampled(x, y, rng.uniform(0.1, 0.9, samples), rng.uniform(0.1, 10, samples))


def _measure(norm, unravel, gradients, features, sampled) -> complaints.Measured:
    def known_part(state, tree):
        return norm.measure(state, tree).known

    def lengths(state, points, known_to=None):
        """Of the parts of points in coordinates that are known to a state, by default this one."""

        def length(flat):
            tree = unravel(flat)
            tree = known_part(state if known_to is None else known_to, tree)
            # Not `primal_norm`, which takes what is no number for zero.
            return jnp.sqrt(jnp.maximum(_precision.inner(norm.to_dual(state, tree), tree), 0))

        return jax.vmap(length)(points)

    def in_state(state):
        x, y, weight, factor = sampled
        middle = weight[:, None] * x + (1 - weight)[:, None] * y
        several = {
            "of_x": x,
            "of_y": y,
            "of_sum": x + y,
            "of_difference": x - y,
            "of_middle": middle,
            "of_multiple": factor[:, None] * x,
            "of_negative": -x,
        }
        stacked = jax.vmap(lambda points: lengths(state, points))(jnp.stack([*several.values()]))
        return dict(zip(several, stacked, strict=True))

    def play_round(state, seen):
        gradient, next_features = seen
        grown = norm.observe_gradient(state, gradient)
        if norm.announce is not None:
            grown = norm.announce(grown, next_features)
        growth = (lengths(state, sampled.x), lengths(grown, sampled.x, state))
        return grown, (in_state(grown), growth)

    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), gradients)
    first = norm.init(zeros)
    following = None
    if norm.announce is not None:
        first = norm.announce(first, jax.tree.map(lambda leaf: leaf[0], features))
        following = jax.tree.map(
            lambda leaf: jnp.concatenate([leaf[1:], jnp.zeros_like(leaf[:1])]), features
        )
    known = known_part(norm.init(zeros), jax.tree.map(jnp.ones_like, zeros))
    is_positive = jnp.all(ravel_pytree(known)[0] == 1)
    last, (later, (before, after)) = jax.lax.scan(play_round, first, (gradients, following))
    history = {
        name: jnp.concatenate([lengths[None], later[name]])
        for name, lengths in in_state(first).items()
    }
    few = sampled.x[:DUALITY_POINTS]

    def dual_length(flat):
        tree = unravel(flat)
        tree = known_part(last, tree)
        return dual_norm(norm, last, norm.to_dual(last, tree))

    return complaints.Measured(
        **history,
        before=before,
        after=after,
        after_zero=lengths(norm.observe_gradient(last, zeros), few)[None],
        last_of_x=lengths(last, few)[None],
        dual=jax.vmap(dual_length)(few)[None],
        is_positive=is_positive,
    )
