"""What an optimizer weighs: its first step to compile, its state, and its step on a network's size.

``python -m benchmarks.weight`` prints the tables below and writes ``weight.json`` to ``--out``
(default ``out/bench``). All optimizers have their default arguments (``adam`` 1e-3), and ratios
are medians of ratios within a turn, in which every optimizer has its go. ``--smoke`` measures
small sizes in some seconds, ``--only diagonal,varynorm`` those and the two that they are compared
with.

* **First step**: to trace and compile ``init`` and ``update``, by a new ``jax.jit`` of a new
  optimizer with all of JAX's caches cleared, nothing run; on one array of 20 numbers, and for some
  optimizers on trees of more and more leaves. ``CPU s`` is of all threads together. ``HLO lines``
  is the length of the compiled ``update``'s text, of which ``instructions`` is the part that is not
  about lines of Python.
* **State**: what the state adds to the parameters in memory, in bytes and in leaves of a shape
  that one of the parameters has.
* **Step**: ``update`` and ``apply_updates`` in one call of ``jit`` a step, parameters and state
  donated. The gradients are normal draws, made before the clock starts, and new ones each step.
"""

import argparse
import collections
import gc
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn
from benchmarks import results, rounds
from benchmarks.timing import Timing, interleave

ADAM, MECHANIZED = "adam", "mechanize(adam)"
OPTIMIZERS = {
    ADAM: lambda: optax.adam(1e-3),
    "prodigy": optax.contrib.prodigy,
    MECHANIZED: lambda: optax.contrib.mechanize(optax.adam(1e-3)),
    "cocob": optax.contrib.cocob,
    "fixed_norm": vn.fixed_norm,
    "diagonal": vn.diagonal,
    "varynorm": vn.varynorm,
}
MATRICES = {"full_matrix": vn.full_matrix, "full_matrix_adagrad": vn.full_matrix_adagrad}
# Gradients of as many trees are in memory; their leaves change places, see `gradients_of`.
GRADIENTS_IN_MEMORY = 8


def compile_first_step(make_optimizer, params):
    """Seconds by the clock and of the CPU, and the size of the compiled ``update``."""
    jax.clear_caches()
    gc.collect()
    optimizer = make_optimizer()
    seconds = collections.Counter()

    def timed(what, function, *arguments):
        began = time.perf_counter(), time.process_time()
        result = function(*arguments)
        clock, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        seconds.update({what: clock, "seconds": clock, "cpu_seconds": cpu})
        return result

    init = timed("tracing", jax.jit(optimizer.init).lower, params)
    init = timed("compiling", init.compile)
    state = init(params)
    update = timed("tracing", jax.jit(optimizer.update).lower, params, state, params)
    update = timed("compiling", update.compile)
    lines = update.as_text().splitlines()
    return dict(seconds) | {
        "lines": len(lines),
        "instructions": sum(" = " in line for line in lines),
    }


def first_steps(optimizers, params, base, turns):
    """The medians for each optimizer, and how many times those of ``base``.

    Args:
      optimizers: functions without arguments by name.
      params: a tree of arrays.
      base: the name of the optimizer that the others are compared with.
      turns: how many times each is compiled.
    """
    compile_first_step(optimizers[base], params)  # the compiler starts
    taken = {name: [] for name in optimizers}
    for _ in range(turns):
        for name, make_optimizer in optimizers.items():
            taken[name].append(compile_first_step(make_optimizer, params))
    records = {
        name: {key: float(np.median([each[key] for each in times])) for key in times[0]}
        for name, times in taken.items()
    }
    for key in ("seconds", "cpu_seconds"):
        timing = Timing(
            {name: np.array([each[key] for each in times]) for name, times in taken.items()},
            dict.fromkeys(taken, 1),
        )
        for name, record in records.items():
            record[f"ratio of {key}"] = timing.ratio(name, base)
    return records


def tree_of_leaves(leaves, leaf_shape):
    return [jnp.zeros(leaf_shape) for _ in range(leaves)]


def state_sizes(optimizers, params):
    """Bytes of the state over those of the parameters, and its leaves; nothing is computed."""
    shapes = {leaf.shape for leaf in jax.tree.leaves(params)}
    records = {}
    for name, make_optimizer in optimizers.items():
        leaves = jax.tree.leaves(jax.eval_shape(make_optimizer().init, params))
        records[name] = {
            "ratio": _bytes(leaves) / _bytes(jax.tree.leaves(params)),
            "leaves of a parameter's shape": sum(leaf.shape in shapes for leaf in leaves),
            "leaves": len(leaves),
        }
    return records


def _bytes(leaves):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def gradients_of(leaves, leaf_shape):
    """Trees of normal draws that have no leaf in common with the steps near them.

    A coordinate sees as many numbers as there are leaves in memory before any comes back: few
    would make records rare (the largest gradient so far), which in training they are not.
    """
    count = leaves * GRADIENTS_IN_MEMORY
    drawn = [*jax.random.normal(jax.random.key(0), (count, *leaf_shape))]
    return [
        [drawn[(step + leaf * GRADIENTS_IN_MEMORY) % count] for leaf in range(leaves)]
        for step in range(count)
    ]


def steps(optimizers, leaves, leaf_shape, turns, *, block=8, warm_up=24):
    """Milliseconds a step, and the times of ``adam``.

    Args:
      optimizers: functions without arguments by name, ``adam`` among them.
      leaves: how many leaves the parameters have.
      leaf_shape: the shape of each.
      turns: how many blocks each plays.
      block: steps that an optimizer makes before it is the next one's turn.
      warm_up: steps that each makes before the first turn.
    """
    params, gradients = tree_of_leaves(leaves, leaf_shape), gradients_of(leaves, leaf_shape)
    programs = {
        name: (rounds.stepped(*rounds.public(make_optimizer(), params), gradients, block), block)
        for name, make_optimizer in optimizers.items()
    }
    for program, _ in programs.values():
        for _ in range(warm_up // block):
            program()
    timing = interleave(programs, turns)
    return {
        name: {
            "milliseconds": 1e3 * timing.seconds_a_round(name),
            "ratio": timing.ratio(name, ADAM),
        }
        for name in programs
    }


def show_first_steps(records, base):
    results.show(
        ["", "tracing s", "compiling s", "CPU s", f"times {base}", "HLO lines", "instructions"],
        [
            [
                name,
                *(f"{record[key]:.3f}" for key in ("tracing", "compiling", "cpu_seconds")),
                f"{record['ratio of seconds']:.2f}",
                *(f"{record[key]:,.0f}" for key in ("lines", "instructions")),
            ]
            for name, record in records.items()
        ],
    )


def show_growth(records):
    """A row for each number of leaves and optimizer, to the same optimizer with the fewest."""
    fewest = min(records)
    results.show(
        ["", "leaves", "CPU s", f"times {ADAM}", f"times {fewest} leaves", "instructions"],
        [
            [
                name,
                str(leaves),
                f"{record['cpu_seconds']:.2f}",
                f"{record['ratio of cpu_seconds']:.2f}",
                f"{record['cpu_seconds'] / records[fewest][name]['cpu_seconds']:.2f}",
                f"{record['instructions']:,.0f}",
            ]
            for name in records[fewest]
            for leaves, record in ((leaves, each[name]) for leaves, each in records.items())
        ],
    )


def show_state(records):
    results.show(
        ["", "bytes, times parameters", "leaves of a parameter's shape", "all leaves"],
        [
            [
                name,
                f"{record['ratio']:.2f}",
                str(record["leaves of a parameter's shape"]),
                str(record["leaves"]),
            ]
            for name, record in records.items()
        ],
    )


def show_steps(records):
    results.show(
        ["", "ms/step", f"times {ADAM}"],
        [
            [name, f"{record['milliseconds']:.3f}", f"{record['ratio']:.2f}"]
            for name, record in records.items()
        ],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="small sizes, some seconds")
    parser.add_argument("--only", help="names of optimizers, with commas between")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    smoke = arguments.smoke
    jax.config.update("jax_enable_compilation_cache", False)

    names = results.pick("--only", arguments.only, [*OPTIMIZERS, *MATRICES])
    optimizers, matrices = (
        {name: make for name, make in each.items() if name in {ADAM, MECHANIZED, *names}}
        for each in (OPTIMIZERS, MATRICES)
    )

    dimension = 2 if smoke else 20
    print(f"First step, d = {dimension}", flush=True)
    first = first_steps(optimizers | matrices, jnp.zeros(dimension), MECHANIZED, 1 if smoke else 7)
    show_first_steps(first, MECHANIZED)

    leaf_shape = (8,) if smoke else (2**15,)
    print(f"\nFirst step, trees with leaves of {leaf_shape[0]:,}", flush=True)
    chosen = {name: optimizers[name] for name in (ADAM, "diagonal") if name in optimizers}
    growth = {
        leaves: first_steps(chosen, tree_of_leaves(leaves, leaf_shape), ADAM, 1 if smoke else 3)
        for leaves in ((1, 2) if smoke else (25, 50, 100))
    }
    show_growth(growth)

    small, large = ((4, (2, 2)), (2, (4, 4))) if smoke else ((32, (64, 64)), (16, (256, 256)))
    print(f"\nState, {_size(*small)}", flush=True)
    state = state_sizes(optimizers, tree_of_leaves(*small))
    show_state(state)

    step = {}
    for leaves, leaf_shape in (large, small):
        label = _size(leaves, leaf_shape)
        print(f"\nStep, {label}", flush=True)
        step[label] = steps(optimizers, leaves, leaf_shape, 2 if smoke else 41)
        show_steps(step[label])

    report = {"first_step": first, "first_step_by_leaves": growth, "state": state, "step": step}
    results.write(arguments.out / "weight.json", report)
    print(f"\nwrote {arguments.out / 'weight.json'}")


def _size(leaves, leaf_shape):
    return f"{leaves * int(np.prod(leaf_shape)):,} parameters in {leaves} leaves"


if __name__ == "__main__":
    main()
