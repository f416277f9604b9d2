"""Time a round against the memory it must move, the naive ways, and Optax's peers.

``python -m benchmarks.speed`` prints a table and writes ``speed.json`` and ``speed.png`` to
``--out`` (default ``out/bench``). ``--smoke`` measures small sizes in a minute.
"""

import argparse
import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn
from benchmarks import rounds
from benchmarks.timing import interleave


def gradients(dimension, count, seed=0, batch=()):
    """At most as long as the Lipschitz bound says: a longer one is rare, and costs extra."""
    g = jax.random.normal(jax.random.key(seed), (*batch, count, dimension))
    return g / jnp.max(jnp.linalg.norm(g, axis=-1))


def full_matrix_rounds(sizes, turns):
    """Rows: ratio to ``ref`` and to two solves; also the times, for the plot."""
    rows, times = [], {}
    for d in sizes:
        count = max(64, min(1024, 2**19 // d))
        g = gradients(d, count)
        timing = interleave(
            {
                "ref": (rounds.scanned(*rounds.matvec_and_rank_one(d), g), count),
                "full_matrix": (
                    rounds.scanned(*rounds.public(vn.full_matrix(lipschitz=1.0), jnp.zeros(d)), g),
                    count,
                ),
                "two solves": (rounds.scanned(*rounds.two_solves(d), g[:2]), 2),
            },
            turns,
        )
        times[d] = {name: timing.seconds_a_round(name) for name in timing.turns}
        rows.append((f"full_matrix / ref, d = {d}", timing.ratio("full_matrix", "ref")))
        rows.append(
            (f"two solves / full_matrix, d = {d}", timing.ratio("two solves", "full_matrix"))
        )
    exponent = np.polyfit(
        np.log(list(times)), np.log([t["full_matrix"] for t in times.values()]), 1
    )[0]
    rows.append((f"growth exponent, d = {min(sizes)} to {max(sizes)}", float(exponent)))
    return rows, times


def root_rounds(sizes, turns):
    """The root norm against one ``eigh`` a round, on a full-rank G; and both their errors."""
    rows, times = [], {}
    for d in sizes:
        count = 2 * d
        g = gradients(d, count)
        optimizer = vn.full_matrix_adagrad(lipschitz=1.0)
        play_round, carry = rounds.public(optimizer, jnp.zeros(d))
        carry = jax.jit(lambda c, g, f=play_round: jax.lax.scan(f, c, g)[0])(carry, g)
        eigh_round, eigh_carry = rounds.one_eigh(d)
        eigh_carry = (eigh_carry[0] + g.T @ g, *eigh_carry[1:])
        timing = interleave(
            {
                "full_matrix_adagrad": (rounds.scanned(play_round, carry, g[:128]), 128),
                "eigh": (rounds.scanned(eigh_round, eigh_carry, g[:1]), 1),
            },
            turns,
        )
        times[d] = {name: timing.seconds_a_round(name) for name in timing.turns}
        rows.append(
            (f"eigh / full_matrix_adagrad, d = {d}", timing.ratio("eigh", "full_matrix_adagrad"))
        )

        exact = np.asarray(g, np.float64)
        values, vectors = np.linalg.eigh(np.eye(d) + exact.T @ exact)
        probes = np.random.default_rng(0).normal(size=(16, d))
        truth = probes @ vectors / np.sqrt(values) @ vectors.T
        norm_state = optax.tree.get(carry[1], "norm_state")
        to_primal = functools.partial(vn.full_matrix_root_norm().to_primal, norm_state)
        ours = jax.vmap(to_primal)(jnp.asarray(probes, jnp.float32))
        values32, vectors32 = jnp.linalg.eigh(jnp.eye(d) + g.T @ g)
        theirs = jnp.asarray(probes, jnp.float32) @ vectors32 / jnp.sqrt(values32) @ vectors32.T
        for name, result in (("full_matrix_adagrad", ours), ("float32 eigh", theirs)):
            error = np.linalg.norm(result - truth, axis=1) / np.linalg.norm(truth, axis=1)
            rows.append((f"relative error of {name}, d = {d}", float(np.max(error))))
    return rows, times


def seeds_at_once(d, seeds, count, turns):
    """64 runs by vmap, against the batched ``ref`` and against one after the other."""
    g = gradients(d, count, batch=(seeds,))
    single = rounds.public(vn.full_matrix(lipschitz=1.0), jnp.zeros(d))
    run_one = jax.jit(lambda g: jax.lax.scan(*single, g)[0])
    timing = interleave(
        {
            "ref": (rounds.batched(*rounds.matvec_and_rank_one(d), g), count),
            "vmap": (rounds.batched(*single, g), count),
            "one by one": (lambda: [run_one(each) for each in g], count),
        },
        turns,
    )
    return [
        (f"{seeds} seeds by vmap / batched ref, d = {d}", timing.ratio("vmap", "ref")),
        (f"{seeds} seeds one by one / by vmap, d = {d}", timing.ratio("one by one", "vmap")),
    ]


def large_vectors(d, turns):
    """The O(d) optimizers against ``optax.adagrad``, in a scan and one call of ``jit`` a step."""
    count = 32
    g = gradients(d, count)
    peers = {
        "adagrad": optax.adagrad(0.1),
        "fixed_norm": vn.fixed_norm(lipschitz=1.0),
        "diagonal": vn.diagonal(lipschitz=1.0),
    }
    ratios = []
    for run, how in ((rounds.scanned, ""), (rounds.stepped, ", a call a step")):
        timing = interleave(
            {
                name: (run(*rounds.public(optimizer, jnp.zeros(d)), g), count)
                for name, optimizer in peers.items()
            },
            turns,
        )
        ratios += [
            (f"{name} / optax.adagrad, d = {d}{how}", timing.ratio(name, "adagrad"))
            for name in ("fixed_norm", "diagonal")
        ]
    return ratios


def memory(d):
    size = sum(
        leaf.nbytes for leaf in jax.tree.leaves(vn.full_matrix(lipschitz=1.0).init(jnp.zeros(d)))
    )
    return [(f"bytes of the state / bytes of the matrix, d = {d}", size / (4 * d**2))]


def optax_peers(sizes, turns):
    """Seconds a step of Optax's optimizers, for the plot."""
    times = {}
    for d in sizes:
        g = gradients(d, 256)
        names = {"adagrad": optax.adagrad(0.1), "adam": optax.adam(0.1)}
        names |= {"cocob": optax.contrib.cocob(), "prodigy": optax.contrib.prodigy()}
        timing = interleave(
            {
                name: (rounds.scanned(*rounds.public(peer, jnp.ones(d)), g), 256)
                for name, peer in names.items()
            },
            turns,
        )
        times[d] = {f"optax {name}": timing.seconds_a_round(name) for name in names}
    return times


def plot(times, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sorted({name for each in times.values() for name in each})
    labels = {"ref": "memory limit: one matvec + one rank-one update"}
    figure, axes = plt.subplots(figsize=(10, 5.5))
    for name in names:
        sizes = [d for d in sorted(times) if name in times[d]]
        style = "k--" if name == "ref" else ("-o" if name.startswith("full") else ":s")
        axes.loglog(
            sizes, [times[d][name] * 1e6 for d in sizes], style, label=labels.get(name, name)
        )
    axes.set_xlabel("dimension d")
    axes.set_ylabel("microseconds a round")
    axes.set_title("Time a round, float32, CPU")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small sizes, one minute")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    smoke = arguments.smoke
    sizes = (32, 64) if smoke else (256, 512, 1024, 2048)
    turns = 3 if smoke else 31

    full_rows, times = full_matrix_rounds(sizes, turns)
    root_rows, root_times = root_rounds((32,) if smoke else (256, 512, 1024), min(turns, 9))
    rows = full_rows + root_rows
    rows += seeds_at_once(*((16, 8, 64) if smoke else (64, 64, 512)), turns)
    rows += large_vectors(1000 if smoke else 1_000_000, turns)
    rows += [row for d in sizes for row in memory(d)]
    for more in (root_times, optax_peers(sizes, turns)):
        for d, each in more.items():
            times.setdefault(d, {}).update(each)

    for name, value in rows:
        print(f"{name:<58} {value:12.4g}")
    print("\nrounds a second")
    for d, each in times.items():
        print(f"  d = {d:<5}" + "".join(f"  {name}: {1 / s:,.0f}" for name, s in each.items()))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "speed.json").write_text(
        json.dumps({"rows": dict(rows), "seconds_a_round": times}, indent=2)
    )
    plot(times, arguments.out / "speed.png")
    print(f"\nwrote {arguments.out / 'speed.json'} and {arguments.out / 'speed.png'}")


if __name__ == "__main__":
    main()
