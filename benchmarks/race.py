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

from benchmarks import choosing, results, streams
from optax_varynorm.racing import figures, libraries, peers
from optax_varynorm.racing.measuring import best_constant_log_loss, measure

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


def log_loss(record):
    return float(figures.numbers(record["loss"]))


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
        row = cells(name, everything, lambda r: results.mark(figures.figure(log_loss(r)), r))
        rows.append([*row, record["kind"], "" if speed is None else f"{speed:,.0f}"])
    for kind in peers.KINDS:
        best = [lowest(stream["learners"], kind)[1] for stream in everything.values()]
        rows.append([f"best {kind}", *map(figures.figure, best), "", ""])
    constants = [stream["best_constant"] for stream in everything.values()]
    rows.append(["best constant in hindsight", *map(figures.figure, constants), "", ""])
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
            [cells(name, everything, figures.rate_note) for name in tuned],
        )


def show_victories(name, everything):
    """One of ours against the best peers of each stream, and on how many it is below them."""
    rows, wins = [], {"untuned": 0, "tuned": 0}
    for stream, result in everything.items():
        ours = log_loss(result["learners"][name])
        row = [stream, figures.figure(ours)]
        for kind in wins:
            peer, loss = lowest(result["learners"], kind)
            wins[kind] += ours < loss
            row += [figures.figure(loss), peer]
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
    optimizers = peers.gather(OURS, choosing.tried(arguments.tries), peers.RAW_UNIT_RATES)
    contenders = peers.in_order(optimizers | libraries.present())
    chosen = choosing.choose(contenders, arguments.only, arguments.tries)
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
            "best_constant": best_constant_log_loss(stream.labels),
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
