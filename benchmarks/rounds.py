"""The programs that ``speed`` times: one round each, to be scanned over gradients."""

import itertools

import jax
import jax.numpy as jnp
import optax


def matvec_and_rank_one(dimension):
    """``ref``: the memory traffic of one matrix-vector product and one rank-one update."""

    def play_round(carry, gradient):
        matrix, total = carry
        vector = matrix @ gradient
        return (matrix - 1e-6 * jnp.outer(vector, vector), total + vector[0]), None

    return play_round, (jnp.eye(dimension) / 2, jnp.zeros(()))


def public(optimizer, params):
    """The optimizer's own ``update`` in the loop a user would write."""

    def play_round(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    return play_round, (params, optimizer.init(params))


def two_solves(dimension):
    """What one writes first: the dual norm and the FTRL direction by one dense solve each."""

    def play_round(carry, gradient):
        matrix, theta, squares = carry
        squares += gradient @ jnp.linalg.solve(matrix, gradient)
        matrix += jnp.outer(gradient, gradient)
        theta += gradient
        leader = jnp.linalg.solve(matrix, theta)
        return (matrix, theta, squares + 1e-12 * leader[0]), None

    return play_round, (2 * jnp.eye(dimension), jnp.zeros(dimension), jnp.zeros(()))


def one_eigh(dimension):
    """What one writes first for the root: an eigendecomposition a round, used for both."""

    def play_round(carry, gradient):
        matrix, theta, squares = carry
        matrix += jnp.outer(gradient, gradient)
        values, vectors = jnp.linalg.eigh(matrix)
        theta += gradient
        leader = vectors @ ((theta @ vectors) / jnp.sqrt(values))
        squares += gradient @ leader
        return (matrix, theta, squares), None

    return play_round, (jnp.eye(dimension), jnp.zeros(dimension), jnp.zeros(()))


def scanned(play_round, carry, gradients):
    """A program without arguments that plays all gradients in one compiled scan."""
    run = jax.jit(lambda carry, gradients: jax.lax.scan(play_round, carry, gradients)[0])
    return lambda: run(carry, gradients)


def stepped(play_round, carry, gradients, count=None):
    """A program without arguments that calls a compiled step for each gradient, state donated.

    With a ``count``, each run goes on with so many of the gradients, around and around.
    """
    step = jax.jit(lambda carry, gradient: play_round(carry, gradient)[0], donate_argnums=0)
    kept = [jax.tree.map(jnp.copy, carry)]
    gradients = [*gradients]
    around = itertools.cycle(gradients)

    def run():
        for gradient in itertools.islice(around, count or len(gradients)):
            kept[0] = step(kept[0], gradient)
        return kept[0]

    return run


def batched(play_round, carry, gradients):
    """The same for many streams at once, each from its own copy of the carry."""
    run = jax.jit(jax.vmap(lambda gradients: jax.lax.scan(play_round, carry, gradients)[0]))
    return lambda: run(gradients)
