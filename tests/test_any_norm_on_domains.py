"""Norms of every kind project on every domain: by what defines the nearest point."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optax_varynorm as vn
from tests.playing import stream

SIZE = 4
NORMS = {
    "group": vn.group_norm(1.5, groups="leaves"),
    "scaled": vn.scaled_norm(vn.full_matrix_norm(), 2.0),
    "block_diagonal": vn.block_diagonal_norm(largest_block=2),
    "sum_of_quadratic": vn.sum_of_norms(vn.full_matrix_norm(), vn.diagonal_norm()),
    "sum": vn.sum_of_norms(vn.lp_norm(1.5), vn.full_matrix_norm()),
    "custom": vn.custom_norm(
        lambda squares, x: jnp.sum((2 + squares) * x**2) + jnp.sum(x) ** 2,
        lambda squares, g: squares + g**2,
        init=jnp.zeros_like,
        strong_convexity=1.0,
    ),
}
DOMAINS = {
    "box": (vn.box(-0.3, 0.5), lambda rng: rng.uniform(-0.3, 0.5, (64, SIZE))),
    "simplex": (vn.simplex(), lambda rng: rng.dirichlet(np.ones(SIZE), 64)),
    "l1_ball": (vn.l1_ball(1.0), lambda rng: signed_shares(rng)),
    "l2_ball": (vn.l2_ball(0.7), lambda rng: 0.7 * directions(rng)),
    "half_space": (
        vn.half_space(jnp.arange(1.0, SIZE + 1), -1.0),
        lambda rng: below(rng.normal(size=(64, SIZE)) - 1.0),
    ),
}


def below(points):
    return points[points @ np.arange(1.0, SIZE + 1) <= -1.0]


def signed_shares(rng):
    return rng.dirichlet(np.ones(SIZE), 64) * rng.choice([-1.0, 1.0], (64, SIZE))


def directions(rng):
    points = rng.normal(size=(64, SIZE))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@functools.cache
def late_state(name):
    norm = NORMS[name]
    gradients = jnp.asarray(stream("power_law", 8, SIZE))
    state = norm.init(jnp.zeros(SIZE))
    return jax.jit(
        lambda s: jax.lax.scan(lambda s, g: (norm.observe_gradient(s, g), None), s, gradients)[0]
    )(state)


slow = pytest.mark.slow
PAIRS = [
    ("group", "box"),
    ("block_diagonal", "simplex"),
    ("sum", "l2_ball"),
    ("custom", "half_space"),
    pytest.param("group", "simplex", marks=slow),
    pytest.param("group", "l2_ball", marks=slow),
    pytest.param("scaled", "box", marks=slow),
    pytest.param("block_diagonal", "l1_ball", marks=slow),
    pytest.param("sum_of_quadratic", "simplex", marks=slow),
    pytest.param("sum", "simplex", marks=slow),
    pytest.param("custom", "l1_ball", marks=slow),
    pytest.param("custom", "box", marks=slow),
]


@pytest.mark.parametrize(("norm_name", "domain_name"), PAIRS)
def test_the_nearest_point_is_what_defines_it(x64, norm_name, domain_name):
    r"""``<to_dual(v - w), u - w> <= 0`` for all ``u`` of the domain, and ``w`` is in it."""
    norm, state = NORMS[norm_name], late_state(norm_name)
    domain, draw = DOMAINS[domain_name]
    rng = np.random.default_rng(0)
    others = draw(rng)
    project = jax.jit(lambda v: domain.project(norm, state, v))
    moved = 0
    for point in 2 * rng.normal(size=(8, SIZE)):
        found = project(jnp.asarray(point))
        assert bool(domain.contains(found.point))
        residual = jnp.asarray(point) - found.point
        normal = np.asarray(norm.to_dual(state, residual))
        inner = (others - np.asarray(found.point)) @ normal
        assert np.max(inner) <= 1e-6 * (1 + np.linalg.norm(normal))
        moved += float(jnp.max(jnp.abs(residual))) > 1e-3
    assert moved >= 3
