"""A constrained problem: how much to trust each of many experts, as a point of the simplex.

The experts are the race's own peers with all their learning rates. Nobody says in advance which
of them is any good; the weights are learned from the log loss of their mixture.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn
from optax_varynorm.demo.race import ROUNDS_A_CHUNK, Result, timed

OURS = "varynorm"
PEER = "exp. gradient"
RATES = np.geomspace(1e-3, 1e1, 17).astype(np.float32)


def advice(peers: Sequence[Result]) -> np.ndarray:
    """The probability each expert gave to the true label, by round, in the first order."""
    losses = np.concatenate([peer.game.losses[:, 0] for peer in peers])
    return np.exp(-np.where(np.isnan(losses), np.inf, losses)).T


def mixture_loss(weights, probabilities):
    """The log loss of the mixture.

    The weights sum to one; adding what is missing changes nothing but the gradient, which loses its
    mean: a constant added to all of it means nothing on the simplex.
    """
    missing = (1 - jnp.sum(weights)) / weights.size
    return -jnp.log(probabilities @ (weights + missing))


def exponentiated_gradient(learning_rate) -> optax.GradientTransformation:
    """Kivinen and Warmuth 1997, as an Optax optimizer: the state is the logarithm of the point."""

    def update(updates, log_weights, params):
        log_weights = jax.nn.log_softmax(log_weights - learning_rate * updates)
        return jnp.exp(log_weights) - params, log_weights

    return optax.GradientTransformation(jnp.log, update)


def on_the_simplex():
    """The package's default on a domain."""
    return vn.varynorm(domain=vn.simplex())


def play_ours(probabilities: np.ndarray, report=None) -> Result:
    """The package's learner."""
    return timed(OURS, None, lambda: _sweep(on_the_simplex, probabilities, report))


def play_peer(probabilities: np.ndarray, report=None) -> Result:
    """The usual one, with all its learning rates."""
    rates = {"learning_rate": RATES}
    return timed(
        PEER,
        RATES,
        lambda: _sweep(exponentiated_gradient, probabilities, report, hyperparameters=rates),
    )


def _sweep(make, probabilities, report, **settings):
    start = jnp.full(probabilities.shape[1], 1 / probabilities.shape[1])
    return vn.sweep(make, mixture_loss, probabilities, start, ROUNDS_A_CHUNK, report, **settings)
