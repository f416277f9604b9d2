"""One round of a linear model under the log loss: predict, pay, learn."""

import jax
import jax.numpy as jnp
import optax


def rounds(optimizer, dimension):
    """The round, and the carry of parameters and state that the first one starts from.

    The rows are on offer to learners that take ``features`` (this round's) and ``next_features``.
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def play_round(carry, example):
        params, state = carry
        row, next_row, label = example
        # log(1 + exp(z)) - label * z, and its derivative by z = <row, params>.
        score = row @ params
        value = jax.nn.softplus(score) - label * score
        gradient = (jax.nn.sigmoid(score) - label) * row
        updates, state = optimizer.update(
            gradient, state, params, features=row, next_features=next_row
        )
        return (optax.apply_updates(params, updates), state), value

    params = jnp.zeros(dimension)
    return play_round, (params, optimizer.init(params))
