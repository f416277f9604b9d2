"""Examples a second of linear models learning online, against Vowpal Wabbit's ``--coin``.

``python -m benchmarks.throughput --data FILE`` prints a table and writes ``throughput.json`` to
``--out`` (default ``out/bench``). The file is LIBSVM's a9a or one like it; without it, rows of the
same shape are drawn. Everything is in memory before the clock starts and goes on learning from
pass to pass; programs take turns, and rates and ratios are medians over the turns.

* ``vw --coin``: a loop, in C, of the binding's ``learn`` over examples parsed beforehand.
* ``vw --coin, few rows``: the same over the first 1,000 rows again and again, which stay in the
  processor's cache.
* ``vw --coin, its own loop``: Vowpal Wabbit's driver, ten passes over its binary cache file, with
  its start and with its second thread that reads.
* ours: a jitted scan over rows with the state donated; ``64*`` is 64 models at once by ``vmap``,
  each with an order of the rows of its own, and counts the examples of all. Learners that are one a
  coordinate look only at what is not zero (but with ``--dense``), in ``vn.one_kernel``; models at
  once are shared out to as many devices of JAX as there are cores, and once more on one core, as
  Vowpal Wabbit learns, and there also by ``vmap`` alone, without ``vn.one_kernel``.
"""

import argparse
import collections
import math
import os
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import optax_varynorm as vn
from benchmarks import results, streams
from benchmarks.timing import interleave
from optax_varynorm.racing import libraries, linear
from optax_varynorm.reductions.per_coordinate import coordinate_learner_of

LEARNERS = "scale_invariant,diagonal_scale_invariant,64*diagonal_scale_invariant"
BASE = "vw --coin"
FEW_ROWS = 1000
PASSES = 10


def one_hot_rows(rows=32_561, attributes=14, values=9, seed=0):
    """As in a9a, every row has one value of each attribute; a linear model draws the labels."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(values, size=(rows, attributes))
    features = np.eye(values)[drawn].reshape(rows, -1)
    scores = features @ rng.normal(size=attributes * values)
    return features, scores > rng.logistic(size=rows)


def continued(run, carry, *data):
    """A program without arguments that goes on where its last call stopped, in place."""
    run = jax.jit(run, donate_argnums=0)
    held = [carry]

    def program():
        held[0], losses = run(held[0], *data)
        return losses

    return program


def ours(optimizer, models, stream):
    """A pass of one model in the stored order, or of many in an order each."""
    count, dimension = stream.features.shape
    play_round, carry = linear.rounds(optimizer, dimension)

    def play(carry, order, features, labels):
        def play_row(carry, indices):
            now, after = indices
            return play_round(carry, (features[now], features[after], labels[now]))

        return jax.lax.scan(play_row, carry, (order, jnp.roll(order, -1)))

    data = jax.tree.map(jnp.asarray, stream)
    if models == 1:
        return continued(play, carry, jnp.arange(count), *data)
    orders = orders_of(models, count)
    carries = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], models, axis=0), carry)
    return continued(jax.vmap(play, in_axes=(0, 0, None, None)), carries, orders, *data)


def ours_sparse(optimizer, models, stream, cores, compiled=vn.one_kernel):
    """The same, with rounds that look only at what is not zero."""
    count, dimension = stream.features.shape
    play_round, state = linear.sparse_rounds(optimizer, dimension)

    def play(state, order, *data):
        def play_row(state, now):
            return play_round(state, [array[now] for array in data])

        return jax.lax.scan(play_row, state, order)

    play = compiled(play)
    data = (*map(jnp.asarray, (*short_rows(stream.features), stream.labels)),)
    if models == 1:
        return continued(play, state, jnp.arange(count), *data)
    play_all = jax.vmap(play, in_axes=(0, 0, None, None, None))
    mesh = jax.make_mesh((cores,), ("cores",), devices=jax.devices()[:cores])
    shared_out = jax.P("cores"), jax.P("cores"), jax.P(), jax.P(), jax.P()
    play_all = jax.shard_map(
        play_all, mesh=mesh, in_specs=shared_out, out_specs=jax.P("cores"), check_vma=False
    )
    states = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], models, axis=0), state)
    places = [jax.sharding.NamedSharding(mesh, spec) for spec in shared_out]
    return continued(
        play_all, *jax.device_put((states, orders_of(models, count), *data), (*places,))
    )


def orders_of(models, count):
    keys = jax.random.split(jax.random.key(0), models)
    return jax.vmap(lambda key: jax.random.permutation(key, count))(keys)


def short_rows(features):
    """What is not zero in each row: indices, filled up by the number of features, and values."""
    is_zero = features == 0
    length = int((~is_zero).sum(axis=1).max())
    first = np.argsort(is_zero, axis=1, kind="stable")[:, : -(-length // 8) * 8]
    values = np.take_along_axis(features, first, axis=1)
    return np.where(values == 0, features.shape[1], first).astype(np.int32), values


def vowpal_wabbit(stream, folder):
    """Programs by name, with the examples that each learns from in a call."""
    from vowpalwabbit import Workspace

    lines = libraries.vw_lines(stream)
    text, cache = folder / "rows.txt", folder / "rows.cache"
    text.write_text("\n".join(lines) + "\n")
    options = f"{libraries.VW_OPTIONS} --coin"
    own_loop = f"{options} -d {text} --cache_file {cache} --passes {PASSES} --holdout_off"

    def over(examples, workspace):
        # The base class's method, without the Python wrapper's type checks.
        learn = super(Workspace, workspace).learn
        return lambda: collections.deque(map(learn, examples), maxlen=0)

    workspace = Workspace(options)
    examples = [workspace.parse(line) for line in lines]
    few = examples[:FEW_ROWS]
    repeats = max(1, len(lines) // len(few))
    return {
        BASE: (over(examples, workspace), len(lines)),
        f"{BASE}, few rows": (over(few * repeats, workspace), len(few) * repeats),
        f"{BASE}, its own loop": (lambda: Workspace(own_loop).finish(), PASSES * len(lines)),
    }


def show(timing):
    """Rates, and ratios within a turn to Vowpal Wabbit at its base and at its fastest."""
    rates = {name: 1 / timing.seconds_a_round(name) for name in timing.turns}
    theirs = [name for name in rates if name.startswith(BASE)]
    bases = {BASE: BASE, "vw's fastest": max(theirs, key=rates.get)} if theirs else {}
    records = {
        name: {"examples_per_second": rate}
        | {f"ratio to {label}": timing.ratio(base, name) for label, base in bases.items()}
        for name, rate in rates.items()
    }
    results.show(
        ["", "examples/s", *(f"to {label}" for label in bases)],
        [
            [name, f"{rate:,.0f}", *(f"{ratio:.2f}" for ratio in ratios)]
            for name, (rate, *ratios) in ((n, r.values()) for n, r in records.items())
        ],
    )
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, help="a LIBSVM file")
    parser.add_argument("--rows", type=int, help="learn only from the first rows")
    parser.add_argument("--learners", default=LEARNERS, help=f"default: {LEARNERS}")
    parser.add_argument("--dense", action="store_true", help="look at zeros, too")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="for models at once")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", arguments.cores)
    raw = one_hot_rows() if arguments.data is None else streams.read_libsvm(arguments.data)
    stream = streams.arrange(*raw, arguments.rows)
    rows, features = stream.features.shape
    source = "drawn one-hot rows" if arguments.data is None else arguments.data.stem
    print(f"{source}: {rows} rows, {features} features with the constant", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        programs = {}
        if libraries.is_installed("vowpalwabbit"):
            programs |= vowpal_wabbit(stream, pathlib.Path(folder))
        else:
            print("Left out: Vowpal Wabbit. To bring it in: pip install vowpalwabbit")
        for text in arguments.learners.split(","):
            models, _, name = text.rpartition("*")
            if hasattr(vn, name):
                count, optimizer = int(models or 1), getattr(vn, name)()
                is_dense = arguments.dense or coordinate_learner_of(optimizer, features) is None
                if is_dense:
                    programs[text] = (ours(optimizer, count, stream), count * rows)
                    continue
                for cores in sorted({1, math.gcd(count, arguments.cores)}):
                    label = f"{text}, {cores} core{'s' * (cores > 1)}" if count > 1 else text
                    programs[label] = (ours_sparse(optimizer, count, stream, cores), count * rows)
                if count > 1:
                    plain = ours_sparse(optimizer, count, stream, 1, compiled=lambda play: play)
                    programs[f"{text}, 1 core, many kernels"] = (plain, count * rows)
            else:
                print(f"Left out: vn.{name}, which does not exist.")
        records = show(interleave(programs, arguments.turns))
    settings = {"source": source, "rows": rows, "features": features, "turns": arguments.turns}
    settings |= {"cores": arguments.cores}
    results.write(arguments.out / "throughput.json", {"settings": settings, "learners": records})
    print(f"\nwrote {arguments.out / 'throughput.json'}")


if __name__ == "__main__":
    main()
