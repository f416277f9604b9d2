"""A few coordinates: the fewer there are, the more XLA simplifies.

In processes of their own, because what goes wrong there can abort the process, and because users
compile with other emitters than the tests that are not slow.
"""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn

ROOT = pathlib.Path(__file__).parent.parent
ROUNDS = 10


def domains_around_the_mean(d):
    """Each with ``d`` coordinates (the product has twice as many), and ``1/d`` in all of them."""
    ones = np.ones(d)
    box, simplex, half_space = vn.box(-1.0, 1.0), vn.simplex(), vn.half_space(ones, 1.5)
    return {
        "box": box,
        "non_negative": vn.non_negative(),
        "simplex": simplex,
        "l1_ball": vn.l1_ball(1.0),
        "l2_ball": vn.l2_ball(1.0),
        "linf_ball": vn.linf_ball(1.0),
        "ellipsoid": vn.ellipsoid(np.diag(1.0 + np.arange(d)), 1.5),
        "half_space": half_space,
        "hyperplane": vn.hyperplane(ones, 1.0),
        "affine": vn.affine(ones[None], ones[:1]),
        "polyhedron": vn.polyhedron(np.stack([ones, -ones]), np.array([1.5, 0.5])),
        "product": vn.product((box, simplex)),
        "intersection": vn.intersection(box, half_space),
        "whole_space": vn.whole_space(),
    }


def play(d, names=()):
    """On the domains of these names, or on all."""
    rng = np.random.default_rng(0)
    domains = domains_around_the_mean(d)
    for name in names or domains:
        domain = domains[name]
        optimizer = vn.full_matrix(domain=domain)
        update = jax.jit(optimizer.update)
        mean = jnp.full(d, 1 / d)
        params = (mean, mean) if name == "product" else mean
        state = jax.jit(optimizer.init)(params)
        for _ in range(ROUNDS):
            drawn = jnp.asarray(rng.normal(size=d) - 1, mean.dtype)
            gradient = jax.tree.map(lambda _, drawn=drawn: drawn, params)
            updates, state = update(gradient, state, params)
            params = optax.apply_updates(params, updates)
            assert np.all(np.isfinite(jax.tree.leaves(params))), (name, params)
            assert domain.contains(params), (name, params)


def ignore_inputs(length):
    """A kernel of a scan that does not look at what it scans."""
    kernel = vn.one_kernel(
        lambda start, rows: jax.lax.scan(lambda total, row: (total / 2 + 1, total), start, rows)
    )
    last, totals = jax.jit(kernel)(0.0, jnp.arange(float(length)))
    expected = 2 - 0.5 ** np.arange(-1.0, length)
    np.testing.assert_allclose([*totals, last], expected, rtol=1e-6)


def look_up_in_one_row(length):
    """A kernel that has indices into a table of one row, of which XLA knows that they are zero."""

    def add_row(total, example):
        index, weight = example
        return total / 2 + weight * jnp.sum(table[index]), total

    table = jnp.ones((1, 3))
    kernel = vn.one_kernel(lambda *examples: jax.lax.scan(add_row, 0.0, examples))
    last, _ = jax.jit(kernel)(jnp.zeros(length, jnp.int32), jnp.ones(length))
    np.testing.assert_allclose(last, 6 - 6 * 0.5**length, rtol=1e-6)


def run_apart(call):
    """With the compiler settings of users, and the programs that the tests have compiled."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    }
    ran = subprocess.run(
        [sys.executable, "-c", f"from tests import test_small_dimensions as t; t.{call}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", ["box", "non_negative", "simplex", "l1_ball"])
def test_full_matrices_play_with_one_coordinate(name):
    run_apart(f"play(1, [{name!r}])")


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3])
def test_full_matrices_play_on_every_domain(d):
    run_apart(f"play({d})")


@pytest.mark.parametrize("length", [5, 5000])
@pytest.mark.parametrize("kernel", ["ignore_inputs", "look_up_in_one_row"])
def test_a_kernel_need_not_use_what_it_is_given(kernel, length):
    run_apart(f"{kernel}({length})")
