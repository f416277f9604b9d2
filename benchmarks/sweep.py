"""Many seeds in one call of ``vn.sweep``, against one compiled run called once a seed.

``python -m benchmarks.sweep`` plays 256 seeds of 1,000 rounds of ``vn.full_matrix()`` at d = 32,
both ways in turn, prints rounds a second and the median of the ratios within a turn, and writes
``sweep.json`` to ``--out`` (default ``out/bench``). Both ways make their streams, start, play and
bring the losses to the host; nothing is compiled while the clock runs.

* ``shuffled``: each seed has an order of its own of one table.
* ``drawn``: each seed draws a table, which takes a good part of the time.
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


def shuffle(rows):
    return lambda key: rows[jax.random.permutation(key, len(rows))]


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


def race(stream, drawn, seeds, rounds):
    """Programs that play all seeds: one by one, and at once."""
    run = single_run(drawn)

    def one_by_one():
        return np.stack([np.asarray(run(seed)) for seed in range(seeds)])

    def at_once():
        start = jnp.zeros(DIMENSION)
        return vn.sweep(vn.full_matrix, loss, stream, start, rounds, seeds=seeds).losses

    return one_by_one, at_once


def streams(rounds):
    """For a sweep and for a single run: one table that each seed shuffles, or one that it draws."""
    table = draw(rounds)(jax.random.key(0))
    return {"shuffled": (table, shuffle(table)), "drawn": (draw(rounds), draw(rounds))}


def check(seeds, rounds):
    """Both ways play the same, in float64: in float32 some runs part by rounding alone."""
    with jax.enable_x64(True):
        for stream in streams(rounds).values():
            one_by_one, at_once = race(*stream, seeds, rounds)
            np.testing.assert_allclose(at_once(), one_by_one(), rtol=1e-7, atol=1e-9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    seeds, rounds = arguments.seeds, arguments.rounds
    check(min(seeds, 8), rounds)
    programs, count = {}, seeds * rounds
    for name, stream in streams(rounds).items():
        one_by_one, at_once = race(*stream, seeds, rounds)
        programs[f"{name}, one by one"] = (one_by_one, count)
        programs[f"{name}, sweep"] = (at_once, count)
    taken = timing.interleave(programs, arguments.turns)
    record = {name: {"rounds_per_second": 1 / taken.seconds_a_round(name)} for name in programs}
    print(f"{seeds} seeds x {rounds} rounds, full_matrix, d = {DIMENSION}")
    for name in programs:
        base = name.split(",")[0] + ", one by one"
        record[name]["ratio"] = taken.ratio(base, name)
        speed, ratio = record[name].values()
        print(f"{name:<22}{speed:>12,.0f} rounds a second{ratio:>8.1f} x")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "sweep.json").write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
