"""Training loss of small networks on digits, against Optax's learning-rate-free optimizers.

``python -m benchmarks.networks`` prints a table and writes ``networks.json`` to ``--out`` (default
``out/bench``). All optimizers take the same number of steps on the same minibatches from the same
initializations. To try one optimizer against the peers of the last run:
``python -m benchmarks.networks --only fixed_norm --models mlp``.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import choosing, results, streams
from benchmarks.models import MODELS
from optax_varynorm.racing import figures, peers

OURS = ("varynorm", "fixed_norm", "diagonal")
LEARNING_RATES = peers.half_decades(-4, 1)
BATCH = 32


def loss(model, params, images, labels):
    logits = model.logits(params, images)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def train(optimizer, model, data, params, batches):
    """The losses on the minibatches, and the final one on all data."""

    def step(carry, batch):
        params, state = carry
        rows = jax.tree.map(lambda leaf: leaf[batch], data)
        value, gradient = jax.value_and_grad(lambda p: loss(model, p, *rows))(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), batches)
    return losses, loss(model, params, *data)


def measure(contender, model, data, starts, batches):
    """All seeds and all learning rates at once; the rate with the lowest median final loss."""

    def train_seeds(optimizer, starts, batches):
        return jax.vmap(functools.partial(train, optimizer, model, data))(starts, batches)

    program = jax.jit(peers.play_grid(contender, train_seeds)).lower(starts, batches).compile()
    began = time.perf_counter()
    losses, final = map(np.asarray, jax.block_until_ready(program(starts, batches)))
    seconds = time.perf_counter() - began
    late = np.mean(losses[..., -max(1, losses.shape[-1] // 10) :], axis=-1)
    medians = np.median(figures.numbers(final), axis=-1)
    winner = int(np.argmin(medians))
    record = {
        "final_loss": figures.finite(final[winner]),
        "late_loss": figures.finite(late[winner]),
        "seconds": seconds,
    }
    return record | figures.by_learning_rate(contender, winner, final)


def median_loss(record):
    return float(np.median(figures.numbers(record["final_loss"])))


def show(records):
    peer = results.best(records, "untuned", median_loss)
    adam = median_loss(records["adam"]) if "adam" in records else float("nan")
    rows = []
    for name, record in records.items():
        final = figures.numbers(record["final_loss"])
        middle = float(np.median(final))
        late = float(np.median(figures.numbers(record["late_loss"])))
        quantiles = [middle, float(np.min(final)), float(np.max(final)), late]
        rows.append(
            [results.mark(name, record), record["kind"]]
            + [figures.figure(value) for value in quantiles]
            + [figures.figure(middle / peer, 3), figures.figure(middle / adam, 3)]
            + [figures.rate_note(record), f"{record['seconds']:.1f}"]
        )
    headings = ["", "kind", "final loss", "min", "max", "last 10 %"]
    headings += ["/ best untuned peer", "/ best adam", "learning rate", "seconds"]
    results.show(headings, rows)
    print(results.cached_note(records.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    results.add_arguments(parser)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", help="names, with commas between; all if left out")
    arguments = parser.parse_args()
    names = results.pick("--models", arguments.models, MODELS)
    # A matrix over all parameters is slow here: it runs where it is asked for.
    asked = [name for name in (arguments.only or "").split(",") if name.startswith("full_matrix")]
    contenders = peers.gather((*OURS, *asked), choosing.tried(arguments.tries), LEARNING_RATES)
    chosen = choosing.choose(contenders, arguments.only, arguments.tries)

    data = jax.tree.map(jnp.asarray, streams.digits())
    size = (arguments.seeds, arguments.steps, BATCH)
    batches = jnp.asarray(np.random.default_rng(0).integers(len(data[0]), size=size))
    settings = {"steps": arguments.steps, "seeds": arguments.seeds, "batch": BATCH}
    everything = {}
    for name in names:
        model = MODELS[name]()
        runs = [model.init(np.random.default_rng(seed)) for seed in range(arguments.seeds)]
        starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
        first = jax.jit(jax.vmap(functools.partial(loss, model), (0, None, None)))(starts, *data)
        parameters = sum(leaf[0].size for leaf in jax.tree.leaves(starts))
        print(
            f"\n{name}: {parameters} parameters, {arguments.steps} steps of {BATCH}, "
            f"{arguments.seeds} seeds, loss {jnp.median(first):.3f} at the start"
        )
        records = results.measure_all(
            contenders,
            chosen,
            functools.partial(measure, model=model, data=data, starts=starts, batches=batches),
            arguments.out / "networks_peers.json",
            f"{name} {results.fingerprint(data, batches, starts, first)}",
        )
        show(records)
        everything[name] = {"parameters": parameters, "optimizers": records}
        results.write(arguments.out / "networks.json", {"settings": settings, "models": everything})
    print(f"\nwrote {arguments.out / 'networks.json'}")


if __name__ == "__main__":
    main()
