"""What a round of a block-diagonal norm costs, against its blocks' rank-one updates.

``python -m benchmarks.blocks`` prints a table and writes ``blocks.json`` to ``--out`` (default
``out/bench``). The model has 100 leaves of one size. Programs take turns, each a jitted scan over
the same gradients with its state carried along; times are medians over the turns, ratios are
taken within a turn.

* ``rank-one``: for each of the 100 blocks, ``u = P g`` and ``P - outer(u, u) / (1 + <g, u>)``, all
  in one program: what any learner with these matrices must do, and nothing else.
* ``norm``: a round of ``block_diagonal_norm``: the dual norm of the gradient, the norm's growth
  and the dual point of the gradients' sum.
* ``one bettor``: a round of Algorithm 1 in that norm, with the leaves made one flat vector by
  ``optax.flatten`` (which spares the other layers a hundred small operations each).
* ``one bettor, tree``: the same without ``optax.flatten``.
* ``one each``: a round of ``per_block`` with a full matrix and a bettor in each block.
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn
from benchmarks import results
from benchmarks.timing import interleave

BASE = "rank-one"


def learner(norm):
    return vn.with_varying_norm(norm, vn.scale_by_coin_betting(vn.ftrl_step()))


def zeros(blocks, size):
    return [jnp.zeros(size) for _ in range(blocks)]


def rank_one(blocks, size):
    def play_round(inverses, gradient):
        def update(inverse, g):
            u = inverse @ g
            return inverse - jnp.outer(u, u) / (1 + g @ u), u[0]

        grown, firsts = zip(*map(update, inverses, gradient), strict=True)
        return grown, sum(firsts)

    return play_round, tuple(jnp.eye(size) / 2 for _ in range(blocks))


def norm_alone(blocks, size):
    norm = vn.block_diagonal_norm()

    def play_round(carry, gradient):
        state, total = carry
        reading = norm.measure(state, gradient)
        state, total = norm.grow(state, reading), optax.tree.add(total, gradient)
        point = norm.to_primal(state, total)
        return (state, total), reading.squared_dual_norm + point[0][0]

    return play_round, (norm.init(zeros(blocks, size)), zeros(blocks, size))


def whole_round(optimizer, blocks, size):
    def play_round(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), params[0][0]

    params = zeros(blocks, size)
    return play_round, (params, optimizer.init(params))


def programs(blocks, size, rounds):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(rounds, blocks * size))
    gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients = [jnp.asarray(g, jnp.float32) for g in np.split(gradients, blocks, axis=1)]
    games = {
        BASE: rank_one(blocks, size),
        "norm": norm_alone(blocks, size),
        "one bettor": whole_round(
            optax.flatten(learner(vn.block_diagonal_norm(block_sizes=[size] * blocks))),
            blocks,
            size,
        ),
        "one bettor, tree": whole_round(learner(vn.block_diagonal_norm()), blocks, size),
        "one each": whole_round(vn.per_block(learner(vn.full_matrix_norm())), blocks, size),
    }

    def program(play_round, first):
        run = jax.jit(lambda carry, gs: jax.lax.scan(play_round, carry, gs), donate_argnums=0)
        held = [first]

        def play():
            held[0], last = run(held[0], gradients)
            return last

        return play

    return {name: (program(*game), rounds) for name, game in games.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=100)
    parser.add_argument("--sizes", default="32,64,128")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    records = {}
    for size in map(int, arguments.sizes.split(",")):
        timing = interleave(programs(arguments.blocks, size, arguments.rounds), arguments.turns)
        records[size] = {
            name: {
                "microseconds_a_round": 1e6 * timing.seconds_a_round(name),
                "ratio": timing.ratio(name, BASE),
            }
            for name in timing.turns
        }
        print(f"\n{arguments.blocks} blocks of {size}", flush=True)
        results.show(
            ["", "us/round", f"to {BASE}"],
            [
                [name, f"{record['microseconds_a_round']:,.0f}", f"{record['ratio']:.2f}"]
                for name, record in records[size].items()
            ],
        )
    settings = {"blocks": arguments.blocks, "rounds": arguments.rounds, "turns": arguments.turns}
    results.write(arguments.out / "blocks.json", {"settings": settings, "sizes": records})
    print(f"\nwrote {arguments.out / 'blocks.json'}")


if __name__ == "__main__":
    main()
