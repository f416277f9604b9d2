"""Rounds write what they must and no more, as the compiled program shows."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from optax_varynorm._in_place import after, rarely, rarely_for_all

# As large as in the benchmark: how XLA adds up small vectors is another matter.
ROUNDS, SIZE = 2, 1_000_000


def compiled_round(optimizer, size):
    """The text of the loop's body for a scan over rounds, without what runs in it rarely."""

    def play_round(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    params = jnp.zeros(size)
    lowered = jax.jit(lambda carry, gradients: jax.lax.scan(play_round, carry, gradients)[0]).lower(
        (params, optimizer.init(params)), jnp.zeros((ROUNDS, size))
    )
    bodies = re.split(r"\n(?=\S)", lowered.compile().as_text())
    # The scan is the loop that takes all gradients along.
    (name,) = re.findall(
        rf"f32\[{ROUNDS},{size}\]\S* .* while\(.* body=(%[\w.]+)", "\n".join(bodies)
    )
    (body,) = (body for body in bodies if body.startswith(f"{name} "))
    return body, bodies


def written(body, shape, kind):
    return re.findall(rf"= f32\[{shape}\]\S* {kind}\(", body)


OPTIMIZERS = {
    "fixed_norm": vn.fixed_norm(lipschitz=1.0),
    "diagonal": vn.diagonal(lipschitz=1.0),
}


@pytest.mark.parametrize(("name", "most"), [("fixed_norm", 6), ("diagonal", 7)])
def test_a_round_writes_few_vectors(name, most):
    """Gradient (twice), direction, sum, parameters, where they stay and follow; the weights."""
    body, _ = compiled_round(OPTIMIZERS[name], SIZE)
    assert len(written(body, f"(?:1,)?{SIZE}", "fusion")) <= most


@pytest.mark.xfail(strict=True, reason="XLA copies the vectors of the state before it writes them")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_round_copies_no_vectors(name):
    body, _ = compiled_round(OPTIMIZERS[name], SIZE)
    assert not written(body, SIZE, "copy")


def test_a_matrix_is_never_copied():
    size = 96
    _, bodies = compiled_round(vn.full_matrix(lipschitz=1.0), size)
    loops = [body for body in bodies if not body.startswith("ENTRY")]
    assert not written("\n".join(loops), f"{size},{size}", "copy")


@pytest.mark.parametrize("due", [False, True])
def test_rarely_is_a_choice(due):
    state = {"a": jnp.arange(3.0), "b": jnp.ones((), jnp.int32)}

    def function(state, number):
        return {"a": state["a"] * number, "b": state["b"] + 1}

    result = jax.jit(lambda due, n: rarely(due, function, state, n))(jnp.array(due), jnp.array(2.0))
    expected = function(state, 2.0) if due else state
    jax.tree.map(np.testing.assert_array_equal, result, expected)


def test_rarely_chooses_for_each_of_a_batch():
    due = jnp.array([True, False, True])
    result = jax.vmap(lambda due, x: rarely(due, lambda s, x: s + x, x, 10 * x))(
        due, jnp.arange(1.0, 4.0)
    )
    np.testing.assert_array_equal(result, [11.0, 2.0, 33.0])


def test_after_changes_nothing():
    tree = (jnp.array([1.0, -0.0, jnp.inf]), jnp.array(3))
    result = after(jnp.isnan(jnp.array(1.0)), tree)
    jax.tree.map(np.testing.assert_array_equal, result, tree)
    assert np.signbit(result[0][1])


class Filling(NamedTuple):
    """A counter that must be emptied at three, and may be at any time."""

    total: jax.Array
    count: jax.Array


def add(state, amount):
    def empty(state, weight):
        return Filling(state.total + weight * state.count, jnp.zeros_like(state.count))

    state = state._replace(count=state.count + amount)
    return rarely_for_all(lambda state, weight: state.count >= 3, empty, state, jnp.array(10.0))


def test_work_for_all_waits_until_one_is_due():
    states = Filling(jnp.zeros(2), jnp.array([0.0, 1.0]))
    amount = jnp.ones(2)
    once = jax.vmap(add)(states, amount)
    np.testing.assert_array_equal(once.count, [1, 2])
    twice = jax.vmap(add)(once, amount)
    np.testing.assert_array_equal(twice.total, [20, 30])
    np.testing.assert_array_equal(twice.count, 0)


def test_work_for_all_under_several_maps():
    states = Filling(jnp.zeros((2, 2)), jnp.array([[0.0, 1.0], [0.0, 2.0]]))
    result = jax.vmap(jax.vmap(add, in_axes=(0, None)), in_axes=(0, None))(states, jnp.ones(()))
    np.testing.assert_array_equal(result.total, [[10, 20], [10, 30]])


def test_work_for_all_has_derivatives():
    def total(amount):
        return add(Filling(jnp.zeros(()), jnp.ones(())), amount).total

    np.testing.assert_array_equal(jax.jacfwd(total)(jnp.array(2.0)), 10.0)
    np.testing.assert_array_equal(
        jax.jacfwd(jax.vmap(total))(jnp.array([2.0, 0.0])), [[10, 0], [0, 10]]
    )


def test_work_for_all_copies_nothing():
    """Without a choice for each of a batch, its matrices are updated in place."""
    optimizer, size, seeds = vn.full_matrix(lipschitz=1.0), 48, 3

    def play(carry, gradients):
        def play_round(carry, gradient):
            params, state = carry
            updates, state = jax.vmap(optimizer.update)(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(play_round, carry, gradients)[0]

    params = jnp.zeros((seeds, size))
    carry = (params, jax.vmap(optimizer.init)(params))
    text = jax.jit(play).lower(carry, jnp.zeros((ROUNDS, seeds, size))).compile().as_text()
    loops = [body for body in re.split(r"\n(?=\S)", text) if not body.startswith("ENTRY")]
    assert not written("\n".join(loops), f"{seeds},{size},{size}", "copy")
