"""Learners around the average of their points: the budget, the certificate, the weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn

EPSILON = 0.5


@functools.partial(jax.jit, static_argnums=(0, 1))
def play(optimizer, slope, features):
    """Points, gradients and states; the slope depends on round, prediction and the average's."""

    def play_round(carry, seen):
        params, state = carry
        round_, row, next_row = seen
        followed = optax.tree.get(state, "followed_average")
        gradient = slope(round_, row @ params, row @ followed) * row
        step, state = optimizer.update(
            gradient, state, params, features=row, next_features=next_row
        )
        return (params + step, state), (params, gradient, state)

    params = jnp.full(features.shape[1], 0.25, features.dtype)
    following = jnp.concatenate([features[1:], jnp.zeros_like(features[:1])])
    rounds = jnp.arange(len(features))
    carry = (params, optimizer.init(params))
    return jax.lax.scan(play_round, carry, (rounds, features, following))[1]


def against_the_average(round_, prediction, followed):
    """Push one way for 60 rounds, then always against the average."""
    return jnp.where(round_ < 60, -1.0, jnp.where(followed > 0, 1.0, -1.0))


def some_features():
    return jnp.asarray(np.random.default_rng(0).uniform(0.5, 1, (300, 3)) * [1.0, 1e3, 1e-3])


def test_the_average_loses_no_more_than_its_budget(x64):
    optimizer = vn.around_average(vn.diagonal_scale_invariant(), EPSILON)
    points, gradients, states = play(optimizer, against_the_average, some_features())
    budget = EPSILON * jnp.sqrt(1 + states.followed_weight)
    np.testing.assert_allclose(states.followed_weight, 1 + np.arange(300))
    assert jnp.all(states.followed_loss <= budget)
    # It was near, and only a smaller share prevented more.
    assert jnp.any(states.followed_loss > 0.9 * budget)
    assert jnp.any(states.followed_share < 0.01)
    losses = jnp.cumsum(jnp.sum(gradients * (points - points[:1]), axis=1))
    assert jnp.all(losses <= 3.0 + budget)


def test_the_average_is_weighted_by_squared_slopes(x64):
    """With a learner that knows no features, so that nothing but the average is tested."""
    features = jnp.asarray(np.asarray(some_features()) / [1.0, 1e3, 1e-3])
    optimizer = vn.around_average(optax.sgd(0.01), 1e9, stake=0.5)
    points, gradients, states = play(
        optimizer, lambda t, p, _: jnp.sin(t.astype(p.dtype) + p), features
    )
    slopes = np.asarray(gradients / features)[:, 0]
    weights = slopes**2
    moved = np.asarray(points - points[:1])
    averages = np.cumsum(weights[:, None] * moved, 0) / (1 + np.cumsum(weights))[:, None]
    np.testing.assert_allclose(states.followed_average, averages, rtol=1e-9)
    alone = -0.01 * np.cumsum(gradients, axis=0)
    np.testing.assert_allclose(moved[1:], alone[:-1] + averages[:-1], atol=1e-12)


def test_the_certificate_has_the_loss_of_the_average(x64):
    learner = vn.diagonal_scale_invariant()
    optimizer = vn.track_regret(vn.around_average(learner, EPSILON))
    _, _, states = play(optimizer, against_the_average, some_features())
    state = jax.tree.map(lambda leaf: leaf[-1], states)
    inner = state.tracked_learner_state
    charged = optax.tree.get(inner.around_state, "charged").value()
    assert inner.followed_loss != 0
    np.testing.assert_allclose(state.tracked_loss.value(), jnp.sum(charged) + inner.followed_loss)
    comparator = jnp.array([0.3, -0.2, 10.0])
    slack = learner.slack(inner.around_state, comparator - state.tracked_origin)
    assert slack >= 0
    regret = vn.regret(state, comparator)
    np.testing.assert_allclose(vn.regret_bound(optimizer, state, comparator), regret + slack)


def test_rounds_that_are_no_numbers_change_nothing():
    optimizer = vn.around_average(vn.diagonal_scale_invariant(), EPSILON)
    params, row = jnp.zeros(2), jnp.array([1.0, 2.0])
    state = optimizer.init(params)
    for _ in range(5):
        step, state = optimizer.update(-row, state, params, features=row, next_features=row)
        params = params + step
    broken = jnp.full(2, jnp.nan)
    step, after = optimizer.update(broken, state, params, features=broken, next_features=row)
    np.testing.assert_array_equal(after.followed_average, state.followed_average)
    np.testing.assert_array_equal(after.followed_loss, state.followed_loss)
    np.testing.assert_allclose(step, 0, atol=1e-6)
    assert state.followed_share > 0


def test_features_are_asked_for():
    optimizer = vn.around_average(optax.sgd(0.1))
    state = optimizer.init(jnp.zeros(2))
    with pytest.raises(ValueError, match=r"features=\.\.\., next_features=\.\.\."):
        optimizer.update(jnp.zeros(2), state, jnp.zeros(2))
