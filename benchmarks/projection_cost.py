"""What a projection in a full-matrix norm costs, in Cholesky factorizations of the same matrix.

``python -m benchmarks.projection_cost`` plays ``vn.full_matrix`` on each domain, keeps late
rounds that left it (the norm's state, the point, the multipliers of the round before), and then
times those projections, and the factorizations, one after the other in a compiled loop,
interleaved. With ``--seeds`` it also times that many games' projections by ``vmap``.

The losses are ``|<x, w> - y|`` with a target outside the domain. ``flat`` draws x alike in all
directions, ``steep`` by a power law, which makes condition numbers of a thousand.
"""

import argparse
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn
from benchmarks import results
from benchmarks.timing import interleave

TARGETS = {"box": 2.0, "simplex": 2.0, "l1_ball": 4.0, "l2_ball": 1.5}
POWERS = {"flat": 0.0, "steep": 2.0}
ROUNDS = 4000
KEPT = 32


def domain_and_comparator(name: str, d: int, rng: np.random.Generator):
    """A domain, a point inside, and one outside that the losses pull to."""
    away = rng.normal(size=d)
    match name:
        case "box":
            return vn.box(-0.5, 0.5), np.zeros(d), away
        case "simplex":
            weights = rng.exponential(size=d) ** 2
            return vn.simplex(), np.full(d, 1 / d), 1.5 * weights / np.sum(weights) - 0.5 / d
        case "l1_ball":
            return vn.l1_ball(0.1 * d), np.zeros(d), away
        case "l2_ball":
            return vn.l2_ball(0.15 * np.sqrt(d)), np.zeros(d), away
    raise ValueError(name)


def examples(d: int, power: float, comparator: np.ndarray, rng: np.random.Generator):
    """Rows of length one, and targets with a little noise."""
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows = (rng.normal(size=(ROUNDS, d)) * np.arange(1.0, d + 1) ** -power) @ basis.T
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    clean = rows @ comparator
    return rows, clean + 0.05 * np.mean(np.abs(clean)) * rng.normal(size=ROUNDS)


@functools.cache
def record(name: str, d: int, stream: str, dtype, seed: int = 0):
    """Late rounds of a game that left the domain: norm states, points, multipliers before."""
    rng = np.random.default_rng(seed)
    domain, start, comparator = domain_and_comparator(name, d, rng)
    data = examples(d, POWERS[stream], comparator, rng)
    optimizer = vn.full_matrix(epsilon=10.0, lipschitz=1.0, domain=domain)

    def step(carry, example):
        params, state = carry
        row, target = example
        gradient = jnp.sign(row @ params - target) * row
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    rows, targets = (jnp.asarray(part, dtype) for part in data)
    params = jnp.asarray(start, dtype)
    most = ROUNDS - 25 * KEPT
    carry = jax.jit(lambda carry, data: jax.lax.scan(step, carry, data)[0])(
        (params, optimizer.init(params)), (rows[:most], targets[:most])
    )
    play = jax.jit(lambda carry, example: step(carry, example)[0])
    kept = []
    for example in zip(rows[most:], targets[most:], strict=True):
        before = optax.tree.get(carry[1], "projection_multipliers")
        carry = play(carry, example)
        norm_state, projected, residual = (
            optax.tree.get(carry[1], name) for name in ("norm_state", "projected", "residual")
        )
        if np.any(residual):
            kept.append((norm_state, projected + residual, before))
        if len(kept) == KEPT:
            break
    if len(kept) < KEPT:
        raise SystemExit(f"{name} {d} {stream}: only {len(kept)} rounds left the domain.")
    return domain, jax.tree.map(lambda *leaves: jnp.stack(leaves), *kept)


def matrices_of(states):
    norm = vn.full_matrix_norm(1.0)
    return jax.jit(jax.vmap(lambda state: norm.inverse(state).block(None)))(states)


def in_turn(function, cases, times):
    """A program that applies a function to each case in turn, again and again; sums, and maxima."""

    @jax.jit
    def run(cases):
        def one(carry, index):
            result, error = function(jax.tree.map(lambda leaf: leaf[index], cases))
            return (carry[0] + result, jnp.maximum(carry[1], error)), None

        turns = jnp.tile(jnp.arange(KEPT, dtype=jnp.int32), times)
        zeros = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], cases)),
        )
        return jax.lax.scan(one, zeros, turns)[0]

    return lambda: run(cases)


def measure(name: str, d: int, stream: str, dtype, turns: int) -> dict:
    domain, recorded = record(name, d, stream, dtype)
    norm = vn.full_matrix_norm(1.0)
    matrices = matrices_of(recorded[0])
    times = max(1, 2000 // d)

    def project(case):
        found = domain.project(norm, *case)
        return found.point, found.error

    def factorize(matrix):
        return jnp.diagonal(jnp.linalg.cholesky(matrix)), jnp.zeros((), dtype)

    run = in_turn(project, recorded, times)
    timing = interleave(
        {
            "projection": (run, KEPT * times),
            "cholesky": (in_turn(factorize, matrices, times), KEPT * times),
        },
        turns,
    )
    eigenvalues = np.linalg.eigvalsh(np.asarray(matrices[-1], np.float64))
    return {
        "domain": name,
        "d": d,
        "stream": stream,
        "dtype": jnp.dtype(dtype).name,
        "condition": float(eigenvalues[-1] / eigenvalues[0]),
        "error": float(run()[1]),
        "microseconds": 1e6 * timing.seconds_a_round("projection"),
        "cholesky": 1e6 * timing.seconds_a_round("cholesky"),
        "ratio": timing.ratio("projection", "cholesky"),
        "target": TARGETS[name],
    }


def measure_batch(name: str, d: int, seeds: int, turns: int) -> dict:
    """Projections of many games at once, and the same one after the other."""
    domain, recorded = record(name, d, "steep", jnp.float32)
    norm = vn.full_matrix_norm(1.0)
    pick = np.arange(seeds) % KEPT
    batch = jax.tree.map(lambda leaf: leaf[pick], recorded)
    project = functools.partial(domain.project, norm)
    together = jax.jit(jax.vmap(lambda *each: project(*each).point))

    @jax.jit
    def one_after_the_other(*batch):
        return jax.lax.map(lambda each: project(*each).point, batch)

    repeats = max(1, 200 // d)
    timing = interleave(
        {
            "together": (lambda: [together(*batch) for _ in range(repeats)], repeats),
            "alone": (lambda: [one_after_the_other(*batch) for _ in range(repeats)], repeats),
        },
        turns,
    )
    return {"domain": name, "d": d, "seeds": seeds, "ratio": timing.ratio("together", "alone")}


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domains", default=",".join(TARGETS))
    parser.add_argument("--sizes", default="32,128,512")
    parser.add_argument("--streams", default=",".join(POWERS))
    parser.add_argument("--x64", action="store_true", help="float64 instead of float32")
    parser.add_argument("--seeds", type=int, default=64, help="0 for none")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    options = parser.parse_args(arguments)
    dtype = jnp.float64 if options.x64 else jnp.float32
    names = results.pick("--domains", options.domains, TARGETS)
    streams = results.pick("--streams", options.streams, POWERS)
    sizes = [int(size) for size in options.sizes.split(",")]
    rows, batches = [], []
    for size in sizes:
        for name in names:
            for stream in streams:
                with jax.enable_x64(options.x64):
                    row = measure(name, size, stream, dtype, options.turns)
                rows.append(row)
                print(f"{name}, d = {size}, {stream}: {row['ratio']:.2f}", flush=True)
            if options.seeds and size <= 128:
                batches.append(measure_batch(name, size, options.seeds, options.turns))
    results.write(options.out / "projection_cost.json", {"alone": rows, "batches": batches})
    results.show(
        ["domain", "d", "stream", "condition", "error", "us", "cholesky us", "ratio", "target"],
        [
            [
                row["domain"],
                str(row["d"]),
                row["stream"],
                f"{row['condition']:.0f}",
                f"{row['error']:.0e}",
                f"{row['microseconds']:.1f}",
                f"{row['cholesky']:.1f}",
                f"{row['ratio']:.2f}",
                f"{row['target']:.1f}",
            ]
            for row in rows
        ],
    )
    if batches:
        results.show(
            ["domain", "d", "seeds", "together / one after the other"],
            [[b["domain"], str(b["d"]), str(b["seeds"]), f"{b['ratio']:.2f}"] for b in batches],
        )


if __name__ == "__main__":
    main()
