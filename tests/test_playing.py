"""The compiled game."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from tests.playing import stream


def test_play_is_the_loop_a_user_would_write():
    features = jnp.asarray(stream("random", 100, 4), jnp.float32)
    traces = []

    def loss(params, f):
        traces.append(None)
        return jnp.abs(f @ params - 1)

    optimizer = vn.full_matrix()
    lines = []
    start = jnp.zeros(4)
    game = vn.play(optimizer, loss, features, start, rounds_a_chunk=25, report=lines.append)

    def play_round(carry, f):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, f)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    compiled = len(traces)
    (params, _), losses = jax.lax.scan(play_round, (start, optimizer.init(start)), features)
    np.testing.assert_allclose(game.losses, losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(game.params, params, rtol=1e-5, atol=1e-6)
    assert len(lines) == 4
    assert "rounds a second" in lines[-1]
    assert compiled == 1, "all chunks share one compilation"
    assert game.rounds_per_second > 0
    assert not start.is_deleted()


def test_streams_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="same number of rows"):
        vn.play(vn.fixed_norm(), None, (jnp.zeros(3), jnp.zeros(4)), jnp.zeros(1))
