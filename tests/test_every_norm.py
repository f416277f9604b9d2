"""Every norm of the package, on any stream: its promises, and the theorem's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import optax_varynorm as vn

ROUNDS, DIMENSION = 5, 3
NORMS = {
    "lp": vn.lp_norm(1.3),
    "lp_learned": vn.lp_norm(1.5, lipschitz=None),
    "diagonal": vn.diagonal_norm(),
    "diagonal_root": vn.diagonal_norm(root=True),
    "diagonal_learned": vn.diagonal_norm(None, start="coordinate"),
    "full_matrix": vn.full_matrix_norm(),
    "full_matrix_learned": vn.full_matrix_norm(None),
    "full_matrix_by_coordinate": vn.full_matrix_norm(None, "coordinate"),
    "full_matrix_root": vn.full_matrix_root_norm(),
    "feature_size": vn.feature_size_norm(with_gradients=True),
    "feature_cover": vn.feature_cover_norm(),
    "max_feature": vn.max_feature_norm(capacity=ROUNDS),
    "group": vn.group_norm(1.5, groups="rows"),
    "group_learned": vn.group_norm(1.5, lipschitz=None),
    "scaled": vn.scaled_norm(vn.full_matrix_norm(None), 0.5),
    "block_diagonal": vn.block_diagonal_norm(largest_block=2),
    "block_diagonal_learned": vn.block_diagonal_norm(
        vn.full_matrix_norm(None, "coordinate"), largest_block=2
    ),
    "sum_of_quadratic": vn.sum_of_norms(vn.full_matrix_norm(), vn.diagonal_norm()),
    "sum": vn.sum_of_norms(vn.lp_norm(1.2), vn.full_matrix_norm(2**-0.5)),
    "custom": vn.custom_norm(
        lambda squares, x: jnp.sum((2 + squares) * x**2),
        lambda squares, g: squares + g**2,
        init=jnp.zeros_like,
        strong_convexity=1.0,
    ),
}

numbers = st.integers(-1000, 1000).map(lambda k: k / 100)
vectors = hnp.arrays(np.float64, DIMENSION, elements=numbers)
features = hnp.arrays(np.float64, (ROUNDS, DIMENSION), elements=numbers)
slopes = hnp.arrays(np.float64, ROUNDS, elements=st.floats(-1, 1))


@functools.cache
def program(norm):
    """What there is to check, round by round, in one compiled game on linear losses."""
    optimizer = vn.track_regret(
        vn.with_varying_norm(norm, vn.scale_by_coin_betting(vn.ftrl_step()))
    )

    def measure(before, state, x, y, p):
        def known(state, point):
            return norm.measure(state, point).known

        seen = known(before, x)
        x, y = known(state, x), known(state, y)

        def length(point, of=state):
            return vn.primal_norm(norm, of, point)

        growth = {"before": length(seen, before), "after": length(seen)}
        if norm.strong_convexity is None:
            return growth
        dual = norm.to_dual(state, x)
        aligned = norm.to_primal(state, y)
        return growth | {
            "chord": p * length(x) ** 2 + (1 - p) * length(y) ** 2,
            "middle": length(p * x + (1 - p) * y) ** 2,
            "difference": p * (1 - p) * length(x - y) ** 2,
            "x": x,
            "there and back": norm.to_primal(state, dual),
            "primal length": length(x),
            "its dual length": vn.dual_norm(norm, state, dual),
            "pairing": jnp.abs(x @ y),
            "limit": length(x) * vn.dual_norm(norm, state, y),
            "best pairing": y @ aligned,
            "best limit": length(aligned) * vn.dual_norm(norm, state, y),
        }

    @jax.jit
    def run(gradients, features, x, y, p):
        following = jnp.concatenate([features[1:], jnp.zeros_like(features[:1])])

        def norm_state(state):
            return state.tracked_learner_state.norm_state

        def play_round(carry, seen):
            params, state = carry
            gradient, now, after = seen
            told = {"features": now, "next_features": after} if norm.announce else {}
            updates, grown = optimizer.update(gradient, state, params, **told)
            record = measure(norm_state(state), norm_state(grown), x, y, p)
            return (optax.apply_updates(params, updates), grown), record

        start = jnp.zeros(DIMENSION, gradients.dtype)
        carry, records = jax.lax.scan(
            play_round, (start, optimizer.init(start)), (gradients, features, following)
        )
        if norm.strong_convexity is None:
            return records, vn.regret(carry[1], x), jnp.inf
        return records, vn.regret(carry[1], x), vn.regret_bound(optimizer, carry[1], x)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@settings(max_examples=25)
@given(features=features, slopes=slopes, x=vectors, y=vectors, p=st.floats(0, 1))
def test_norms_keep_their_promises_on_any_stream(norm, features, slopes, x, y, p):
    with jax.enable_x64(True):
        data = map(jnp.asarray, (slopes[:, None] * features, features, x, y, p))
        record, regret, bound = jax.tree.map(np.asarray, program(norm)(*data))

    def at_most(small, large, slack=1e-7):
        assert np.all(small <= large + slack * (1 + np.abs(large)))

    at_most(record["before"], record["after"])
    at_most(regret, bound)
    if norm.strong_convexity is None:
        return  # not strongly convex, and one in the span of the features only
    close = {"rtol": 1e-6, "atol": 1e-9}
    at_most(record["pairing"], record["limit"])
    np.testing.assert_allclose(record["best pairing"], record["best limit"], **close)
    np.testing.assert_allclose(record["primal length"], record["its dual length"], **close)
    np.testing.assert_allclose(
        record["there and back"], record["x"], rtol=1e-6, atol=1e-6 * (1 + np.max(np.abs(x)))
    )
    gap = float(norm.strong_convexity) * record["difference"]
    # Relative to the chord alone: what is left of it after the gap may be nothing.
    assert np.all(record["middle"] <= record["chord"] - gap + 1e-7 * (1 + record["chord"]))
