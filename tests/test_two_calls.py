"""Predicting and learning in two calls plays what one call plays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn

OPTIMIZERS = {
    "diagonal_scale_invariant": vn.diagonal_scale_invariant(),
    "scale_invariant": vn.scale_invariant(),
    "fixed_norm": vn.fixed_norm(),
    "sgd": optax.sgd(0.1),
}
every_optimizer = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "scale_invariant" else ())
        for name in OPTIMIZERS
    ],
)
LEARNERS = {
    name: vn.OnlineLearner(*map(jax.jit, vn.predict_then_update(optimizer)))
    for name, optimizer in OPTIMIZERS.items()
}


def stream(rounds=60, dimension=3):
    """Features of different sizes, the last one first seen late, and labels in {-1, 1}."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rounds, dimension)) * [1.0, 100.0, 1e-3]
    features[: rounds // 3, -1] = 0
    labels = np.sign(features @ [1.0, -0.02, 500.0] + 0.3)
    return jnp.asarray(features, jnp.float32), jnp.asarray(labels, jnp.float32)


@jax.jit
def gradient_of(params, features, label):
    return jax.grad(lambda w: jax.nn.softplus(-label * (features @ w)))(params)


@functools.partial(jax.jit, static_argnums=0)
def points_of_one_call(optimizer, features, labels):
    optimizer = optax.with_extra_args_support(optimizer)

    def play_round(carry, example):
        params, state = carry
        row, next_row, label = example
        step, state = optimizer.update(
            gradient_of(params, row, label), state, params, features=row, next_features=next_row
        )
        return (optax.apply_updates(params, step), state), params

    params = jnp.zeros(features.shape[1])
    next_features = jnp.concatenate([features[1:], jnp.zeros_like(features[:1])])
    examples = (features, next_features, labels)
    return jax.lax.scan(play_round, (params, optimizer.init(params)), examples)[1]


def points_of_two_calls(learner, features, labels, predictions_a_round=1):
    state = learner.init(jnp.zeros(features.shape[1]))
    points = []
    for row, label in zip(features, labels, strict=True):
        for _ in range(predictions_a_round):
            params, state = learner.predict(state, row)
        points.append(params)
        state = learner.update(state, gradient_of(params, row, label))
    return np.stack(points)


def assert_same_points(actual, expected):
    scale = np.abs(expected).max(axis=0)
    assert scale.min() > 0, "every feature was learned from"
    np.testing.assert_allclose(actual / scale, expected / scale, atol=1e-5)


@every_optimizer
def test_two_calls_play_the_points_of_one(name):
    examples = stream()
    expected = np.asarray(points_of_one_call(OPTIMIZERS[name], *examples))
    assert_same_points(points_of_two_calls(LEARNERS[name], *examples), expected)


@every_optimizer
def test_predicting_twice_learns_once(name):
    examples = stream()
    expected = points_of_two_calls(LEARNERS[name], *examples)
    assert_same_points(points_of_two_calls(LEARNERS[name], *examples, 2), expected)


def test_the_state_does_not_alias_the_parameters():
    learner = vn.predict_then_update(optax.sgd(0.1))
    params = jnp.zeros(3)
    state = learner.init(params)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((params, state))]
    assert len(set(pointers)) == len(pointers)
