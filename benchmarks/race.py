"""Progressive log loss of linear models on real streams: one pass, raw units, predict then learn.

``python -m benchmarks.race --data FOLDER`` prints a table and writes ``race.json`` to ``--out``
(default ``out/bench``). The streams are those that scikit-learn and River ship and every
``*.libsvm`` file of the folder; rows come one at a time, shuffled once and for all learners alike,
with a constant one as the last feature. Vowpal Wabbit and River take part if they are installed.
To try one optimizer against the peers of the last run:
``python -m benchmarks.race --data FOLDER --only full_matrix --streams a9a --rows 5000``.
"""

import argparse
import functools
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import libraries, peers, results, streams
from optax_varynorm.racing import linear

# The first one is the default for linear models, whose victories are counted at the end.
OURS = (
    "scale_invariant",
    "varynorm",
    "fixed_norm",
    "diagonal",
    "full_matrix",
    "full_matrix_adagrad",
    "diagonal_scale_invariant",
    "full_matrix_scale_invariant",
)
VARIANTS: dict = {}
# Raw units span many decades, and so do the best learning rates.
LEARNING_RATES = peers.half_decades(-8, 2)


def play(optimizer, features, labels):
    """The loss of each round, paid before it is learned from.

    The last row has no next, and stands in for it.
    """
    play_round, carry = linear.rounds(optimizer, features.shape[1])
    next_rows = jnp.concatenate([features[1:], features[-1:]])
    return jax.lax.scan(play_round, carry, (features, next_rows, labels))[1]


def measure(contender, stream):
    """The libraries know how; of optimizers, all learning rates at once and the best of them."""
    if isinstance(contender, libraries.Library):
        return contender.measure(stream)
    stream = jax.tree.map(jnp.asarray, stream)
    program = jax.jit(peers.play_grid(contender, play)).lower(*stream).compile()
    began = time.perf_counter()
    losses = jax.block_until_ready(program(*stream))
    seconds = time.perf_counter() - began
    means = np.mean(np.asarray(losses), axis=1, dtype=np.float64)
    winner = int(np.argmin(results.numbers(means)))
    record = {
        "log_loss": results.finite(means)[winner],
        "examples_per_second": len(stream.labels) / seconds,
    }
    return record | results.by_learning_rate(contender, winner, means)


def best_constant(labels):
    """The mean log loss of always predicting the labels' own frequency."""
    share = np.mean(labels, dtype=np.float64)
    return float(-sum(p * np.log(p) for p in (share, 1 - share) if p > 0))


def log_loss(record):
    return float(results.numbers(record["log_loss"]))


def lowest(learners, kind):
    """The best of a kind, by name and log loss; not a number if none of it was measured."""
    losses = {name: log_loss(r) for name, r in learners.items() if r["kind"] == kind}
    return min(losses.items(), key=lambda item: item[1], default=("-", float("nan")))


def cells(name, everything, write):
    """A row of the table: what ``write`` says of a learner on each stream."""
    records = [stream["learners"].get(name) for stream in everything.values()]
    return [name, *("" if record is None else write(record) for record in records)]


def show(everything):
    """Streams as columns; speeds are those on the longest stream."""
    longest = max(everything.values(), key=lambda stream: stream["rows"])
    learners = {
        name: record
        for stream in everything.values()
        for name, record in stream["learners"].items()
    }
    rows = []
    for name, record in learners.items():
        speed = longest["learners"].get(name, {}).get("examples_per_second")
        row = cells(name, everything, lambda r: results.mark(results.figure(log_loss(r)), r))
        rows.append([*row, record["kind"], "" if speed is None else f"{speed:,.0f}"])
    for kind in peers.KINDS:
        best = [lowest(stream["learners"], kind)[1] for stream in everything.values()]
        rows.append([f"best {kind}", *map(results.figure, best), "", ""])
    constants = [stream["best_constant"] for stream in everything.values()]
    rows.append(["best constant in hindsight", *map(results.figure, constants), "", ""])
    results.show(["mean log loss", *everything, "kind", "examples/s"], rows)
    print(
        "Examples a second: on the longest stream; tuned ones play all their rates at once, "
        "vw parses its text meanwhile."
    )
    print(results.cached_note([r for s in everything.values() for r in s["learners"].values()]))
    tuned = [name for name, record in learners.items() if record["kind"] == "tuned"]
    if tuned:
        print()
        results.show(
            ["best learning rate", *everything],
            [cells(name, everything, results.rate_note) for name in tuned],
        )


def show_victories(name, everything):
    """One of ours against the best peers of each stream, and on how many it is below them."""
    rows, wins = [], {"untuned": 0, "tuned": 0}
    for stream, result in everything.items():
        ours = log_loss(result["learners"][name])
        row = [stream, results.figure(ours)]
        for kind in wins:
            peer, loss = lowest(result["learners"], kind)
            wins[kind] += ours < loss
            row += [results.figure(loss), peer]
        rows.append(row)
    results.show(["stream", name, "best untuned", "by", "best tuned", "by"], rows)
    count = len(everything)
    print(
        f"{name}: below every untuned peer on {wins['untuned']} of {count} streams; "
        f"below every tuned on {wins['tuned']} of {count}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results.add_arguments(parser)
    parser.add_argument("--data", type=pathlib.Path, help="a folder of LIBSVM files")
    parser.add_argument("--streams", help="names, with commas between; all if left out")
    parser.add_argument("--rows", type=int, help="play only the first rows of each stream")
    parser.add_argument("--order", default="0", help="the shuffle's seed, or: stored")
    arguments = parser.parse_args()
    optimizers = peers.gather(OURS, VARIANTS, LEARNING_RATES, arguments.tries)
    contenders = peers.in_order(optimizers | libraries.present())
    chosen = peers.choose(contenders, arguments.only, arguments.tries)
    seed = None if arguments.order == "stored" else int(arguments.order)
    available = streams.available(arguments.data)
    names = results.pick("--streams", arguments.streams, available)

    for note in libraries.notes():
        print(note)
    everything = {}
    for name in names:
        stream = streams.load(name, arguments.data, arguments.rows, seed)
        rows, features = stream.features.shape
        cut = " (cut by --rows)" if rows == arguments.rows else ""
        order = "stored order" if seed is None else f"shuffled by seed {seed}"
        print(
            f"{name}: {rows} rows{cut}, {order}, {features} features with the constant", flush=True
        )
        records = results.measure_all(
            contenders,
            chosen,
            functools.partial(measure, stream=stream),
            arguments.out / "race_peers.json",
            f"{name} {results.fingerprint(stream)}",
        )
        everything[name] = {
            "rows": rows,
            "features": features,
            "best_constant": best_constant(stream.labels),
            "learners": records,
        }
        settings = {"cut_to_rows": arguments.rows, "order": arguments.order}
        results.write(arguments.out / "race.json", {"settings": settings, "streams": everything})
    print()
    show(everything)
    if default := next((name for name in contenders if name in chosen & set(OURS)), None):
        print()
        show_victories(default, everything)
    print(f"\nwrote {arguments.out / 'race.json'}")


if __name__ == "__main__":
    main()
