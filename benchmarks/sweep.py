"""Many seeds in one call of ``vn.sweep``, against one compiled run called once a seed.

``python -m benchmarks.sweep`` plays 256 seeds of 1,000 rounds of ``vn.full_matrix()`` at d = 32,
both ways in turn, prints rounds a second and the median of the ratios within a turn, and writes
``sweep.json`` to ``--out`` (default ``out/bench``). Both ways draw their streams, start, play and
bring the losses to the host; nothing is compiled while the clock runs.
"""

import argparse
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn
from benchmarks import timing

DIMENSION = 32


def loss(params, row):
    return jnp.abs(row @ params - 1)


def draw(rounds):
    def stream(key):
        rows = jax.random.normal(key, (rounds, DIMENSION))
        return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)

    return stream


def single_run(stream):
    """A whole run as one compiled program of its seed: no chunks, no history but the losses."""
    optimizer = vn.full_matrix()

    def play_round(carry, row):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, row)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def run(seed):
        params = jnp.zeros(DIMENSION)
        carry = (params, optimizer.init(params))
        return jax.lax.scan(play_round, carry, stream(jax.random.key(seed)))[1]

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    seeds, rounds = arguments.seeds, arguments.rounds
    stream = draw(rounds)
    run = single_run(stream)

    def one_by_one():
        return np.stack([np.asarray(run(seed)) for seed in range(seeds)])

    def at_once():
        start = jnp.zeros(DIMENSION)
        return vn.sweep(vn.full_matrix, loss, stream, start, rounds, seeds=seeds).losses

    np.testing.assert_allclose(at_once(), one_by_one(), rtol=1e-3, atol=1e-4)
    count = seeds * rounds
    taken = timing.interleave(
        {"one by one": (one_by_one, count), "sweep": (at_once, count)}, arguments.turns
    )
    speed = {name: 1 / taken.seconds_a_round(name) for name in ("one by one", "sweep")}
    ratio = taken.ratio("one by one", "sweep")
    print(f"{seeds} seeds x {rounds} rounds, full_matrix, d = {DIMENSION}")
    for name, rounds_a_second in speed.items():
        print(f"{name:<12}{rounds_a_second:>12,.0f} rounds a second")
    print(f"sweep is {ratio:.1f} times as fast")
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = {"rounds_per_second": speed, "ratio": ratio}
    (arguments.out / "sweep.json").write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
