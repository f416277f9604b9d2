"""Norms and learners of blocks: as if each block were alone, and as cheap for many as for few."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import jaxprs_in_params
from jax.flatten_util import ravel_pytree

import optax_varynorm as vn
from optax_varynorm._blocks import Blocks
from tests import reference
from tests.playing import play, stream

# Lengths in no order, a matrix, and a leaf that is cut.
PARAMS = {"a": jnp.zeros(3), "b": jnp.zeros((2, 1)), "c": jnp.zeros(5)}
SIZES = (3, 2, 3, 2)
LARGEST = 4


def learner(norm, epsilon=1.0):
    return vn.with_varying_norm(
        norm, vn.scale_by_coin_betting(vn.ftrl_step(), vn.coin_betting(epsilon))
    )


def equal_leaves(count):
    return {f"{i:03}": jnp.zeros((2, 3)) for i in range(count)}


def equations(jaxpr, name=None):
    """How many there are, in inner programs too."""
    total = 0
    for equation in jaxpr.eqns:
        total += name is None or equation.primitive.name == name
        total += sum(equations(inner, name) for inner in jaxprs_in_params(equation.params))
    return total


def test_blocks_are_leaves_or_nearly_equal_parts_of_them():
    blocks = Blocks.of_leaves(PARAMS, LARGEST)
    assert blocks.sizes == SIZES
    flat = jnp.arange(10.0)
    stacks = blocks.stack(flat)
    assert [stack.shape for stack in stacks] == [(2, 2), (2, 3)]
    np.testing.assert_array_equal(stacks[0], [[3, 4], [8, 9]])
    np.testing.assert_array_equal(blocks.unstack(stacks), flat)
    assert Blocks.of_leaves(PARAMS, None).sizes == (3, 2, 5)


@pytest.mark.parametrize("largest", [0, -3])
def test_a_block_has_at_least_one_coordinate(largest):
    with pytest.raises(ValueError, match="at least one"):
        vn.block_diagonal_norm(largest_block=largest)
    with pytest.raises(ValueError, match="at least one"):
        vn.per_block(vn.diagonal(), largest_block=largest)


def test_sizes_say_where_blocks_are_when_leaves_are_joined(x64):
    gradients = stream("drifting", 40, 10)
    sizes = [leaf.size for leaf in jax.tree.leaves(PARAMS)]
    joined = learner(vn.block_diagonal_norm(block_sizes=sizes))
    game = play(joined, jnp.asarray(gradients), jnp.zeros(10))
    unravel = ravel_pytree(jax.tree.map(lambda x: x.astype(float), PARAMS))[1]
    trees = jax.vmap(unravel)(jnp.asarray(gradients))
    expected = play(learner(vn.block_diagonal_norm()), trees, unravel(jnp.zeros(10)))
    points = jax.vmap(lambda tree: ravel_pytree(tree)[0])(expected.points)
    assert np.ptp(points) > 0.01
    np.testing.assert_allclose(game.points, points, rtol=1e-9, atol=1e-12)


def test_sizes_of_empty_leaves_are_no_blocks():
    params = {"a": jnp.zeros(3), "b": jnp.zeros((0, 2)), "c": jnp.zeros(2)}
    sizes = (leaf.size for leaf in jax.tree.leaves(params))
    norm = vn.block_diagonal_norm(block_sizes=sizes)
    assert norm.init(params).blocks == vn.block_diagonal_norm().init(params).blocks
    none = vn.block_diagonal_norm(block_sizes=[])
    assert none.to_primal(none.observe_gradient(none.init({}), {}), {}) == {}


def test_sizes_that_are_wrong_are_refused():
    with pytest.raises(ValueError, match="numbers of coordinates"):
        vn.block_diagonal_norm(block_sizes=[3, -1])
    with pytest.raises(ValueError, match="leave `largest_block` out"):
        vn.block_diagonal_norm(largest_block=2, block_sizes=[3])
    with pytest.raises(ValueError, match="add up to 9, but there are 10"):
        vn.block_diagonal_norm(block_sizes=[3, 6]).init(PARAMS)


def test_the_matrix_is_block_diagonal(x64):
    norm = vn.block_diagonal_norm(vn.full_matrix_norm(2.0), LARGEST)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), PARAMS)
    _, unravel = ravel_pytree(params)
    gradients, x = stream("power_law", 20, 10), jnp.asarray(stream("random", 1, 10)[0])
    state = norm.init(params)
    observe = jax.jit(norm.observe_gradient)
    for g in gradients:
        state = observe(state, unravel(jnp.asarray(g)))
    ends = np.cumsum(SIZES)
    blocks = np.zeros((10, 10))
    for end, size in zip(ends, SIZES, strict=True):
        where = slice(end - size, end)
        matrices = reference.FullMatrix(size, 2.0)
        for g in gradients:
            matrices = matrices.observe(g[where])
        blocks[where, where] = matrices.matrix
    flat = lambda tree: ravel_pytree(tree)[0]  # noqa: E731
    np.testing.assert_allclose(flat(norm.to_dual(state, unravel(x))), blocks @ x, rtol=1e-10)
    np.testing.assert_allclose(
        flat(norm.to_primal(state, unravel(x))), np.linalg.solve(blocks, x), rtol=1e-10
    )
    inverse = norm.inverse(state)
    np.testing.assert_allclose(inverse.block(None), np.linalg.inv(blocks), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(inverse.diagonal, np.diag(np.linalg.inv(blocks)), rtol=1e-9)
    reading = norm.measure(state, unravel(x))
    np.testing.assert_allclose(
        reading.squared_dual_norm, x @ np.linalg.solve(blocks, x), rtol=1e-10
    )


@pytest.mark.slow
@pytest.mark.parametrize("start", ["isotropic", "coordinate"])
def test_one_block_is_the_whole_matrix(x64, start):
    norm = vn.full_matrix_norm(None, start)
    gradients, origin = jnp.asarray(stream("drifting", 30, 4)), jnp.zeros(4, jnp.float64)
    ours = play(learner(vn.block_diagonal_norm(norm)), gradients, origin)
    theirs = play(learner(norm), gradients, origin)
    np.testing.assert_allclose(ours.points, theirs.points, rtol=1e-9, atol=1e-12)


def test_learners_of_blocks_play_as_if_alone_and_their_bounds_add_up(x64):
    params = {"a": jnp.zeros(3, jnp.float64), "b": jnp.zeros(3, jnp.float64)}
    gradients = jnp.asarray(stream("drifting", 30, 6))
    trees = {"a": gradients[:, :3], "b": gradients[:, 3:]}
    one = learner(vn.full_matrix_norm())
    alone = vn.track_regret(one)
    together = vn.track_regret(vn.per_block(one))
    game = play(together, trees, params)
    comparator = {"a": jnp.ones(3), "b": -jnp.ones(3)}
    total = 0.0
    for name in params:
        single = play(alone, trees[name], params[name])
        np.testing.assert_allclose(game.points[name], single.points, rtol=1e-9, atol=1e-12)
        total += float(vn.regret_bound(alone, single.final_state, comparator[name]))
    bound = vn.regret_bound(together, game.final_state, comparator)
    assert float(bound) == pytest.approx(total)
    assert vn.regret(game.final_state, comparator) <= total


def test_programs_do_not_grow_with_the_number_of_leaves():
    norm = vn.block_diagonal_norm()

    def beyond_trees(count):
        params = equal_leaves(count)
        program = jax.make_jaxpr(norm.observe_gradient)(norm.init(params), params).jaxpr
        return equations(program) - equations(jax.make_jaxpr(flat_and_trees)(params).jaxpr)

    assert beyond_trees(100) == beyond_trees(10)

    def products_and_loops(optimizer, count):
        params = equal_leaves(count)
        program = jax.make_jaxpr(optimizer.update)(params, optimizer.init(params), params).jaxpr
        return [equations(program, name) for name in ("while", "log", "dynamic_update_slice")]

    for optimizer in (learner(norm), vn.per_block(learner(vn.full_matrix_norm()))):
        assert products_and_loops(optimizer, 100) == products_and_loops(optimizer, 10)


def flat_and_trees(tree):
    """A gradient as a vector, and the two trees of its reading."""
    flat, unravel = ravel_pytree(tree)
    return flat, unravel(flat), unravel(flat)


def test_a_hundred_leaves_compile_once():
    params = equal_leaves(100)
    gradients = jax.tree.map(jnp.ones_like, params)
    norm = vn.block_diagonal_norm()
    norm_state, observe = norm.init(params), jax.jit(norm.observe_gradient)
    optimizer = vn.per_block(learner(vn.full_matrix_norm()))
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(3):
        norm_state = observe(norm_state, gradients)
        updates, state = step(gradients, state, params)
        params = optax.apply_updates(params, updates)
    assert observe._cache_size() == step._cache_size() == 1
    assert all(np.all(leaf < 0) for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    "optimizer", [learner(vn.block_diagonal_norm()), vn.per_block(vn.full_matrix())]
)
def test_no_parameters_are_no_blocks(optimizer):
    state = optimizer.init({})
    updates, _ = optimizer.update({}, state, {})
    assert updates == {}


@pytest.mark.parametrize(
    "optimizer",
    [vn.per_block(vn.full_matrix()), vn.per_block(vn.varynorm()), vn.per_coordinate(vn.diagonal())],
    ids=["full_matrix", "varynorm", "per_coordinate"],
)
def test_a_block_that_feels_nothing_but_rounding_stays(optimizer):
    """As a bias before a normalization does."""
    start = {"weights": jnp.zeros(3), "bias": jnp.zeros(3)}

    def step(carry, noise):
        params, state = carry
        gradient = {"weights": jnp.sign(params["weights"] - 1), "bias": 1e-8 * noise}
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), params

    noise = jax.random.normal(jax.random.key(0), (3000, 3))
    (params, _), points = jax.lax.scan(step, (start, optimizer.init(start)), noise)
    np.testing.assert_allclose(params["weights"], 1, atol=0.1)
    assert jnp.max(jnp.abs(points["bias"])) < 1
