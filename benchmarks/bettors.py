"""Compare the one-dimensional learners: regret on streams, and the bounds they come with.

``python -m benchmarks.bettors`` prints two tables. Losses are ``|y - u|`` for many ``u``, so the
coin answers the bet; regrets are divided by those of ``coin_betting`` on the same stream, and
averaged geometrically over ``u``. ``--rounds`` sets the length of a stream.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optax_varynorm as vn

LEARNERS = {
    "coin_betting": vn.coin_betting(),
    "coin_betting Z=0.3": vn.coin_betting(Z=0.3),
    "kt_betting": vn.kt_betting(),
    "freegrad_betting": vn.freegrad_betting(),
    "constrained coin_betting": vn.constrained_bets(vn.coin_betting()),
    "constrained freegrad": vn.constrained_bets(vn.freegrad_betting()),
}
SEEDS = 4
TARGETS = {"u = 0.01..1": np.logspace(-2, 0, 12), "u = 1..1000": np.logspace(0, 3, 12) * 1.1}


def streams(rounds, seed):
    """Sizes of the coins, and noise added to them, one pair of arrays a stream."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=rounds)
    ones, zeros = np.ones(rounds), np.zeros(rounds)
    return {
        "size 1": (ones, zeros),
        "size 0.1": (0.1 * ones, zeros),
        "decaying": (1 / np.sqrt(1 + np.arange(rounds) / 10), zeros),
        "noisy": (0.2 * ones, 0.4 * noise),
        "sparse": ((rng.random(rounds) < 0.05).astype(float), zeros),
    }


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, None, None, 0))
def regret(learner, sizes, noise, target):
    """Against ``target``, of the linear losses that the coins are the slopes of."""

    def play_round(carry, example):
        bet, state, total = carry
        size, disturbance = example
        coin = jnp.clip(size * jnp.sign(bet - target) + disturbance, -1, 1)
        step, state = learner.update(coin, state, bet)
        return (optax.apply_updates(bet, step), state, total + coin * (bet - target)), None

    start = jnp.zeros_like(target)
    carry = (start, learner.init(start), start)
    return jax.lax.scan(play_round, carry, (sizes, noise))[0][2]


def measure(rounds):
    """Mean regret over seeds, as ``result[stream, targets][learner]``, one entry a target."""
    result = {}
    for name in streams(1, 0):
        for label, targets in TARGETS.items():
            result[name, label] = {
                learner: np.mean(
                    [
                        regret(play, *map(jnp.asarray, streams(rounds, seed)[name]), targets)
                        for seed in range(SEEDS)
                    ],
                    axis=0,
                )
                for learner, play in LEARNERS.items()
            }
    return result


def bounds(squares):
    """The bounds for coins of size one, where the sums of sizes and of squares are equal."""
    return {
        "thm:fullonedolo": vn.certificates.thm_fullonedolo,
        "coin_betting": vn.certificates.coin_betting_bound,
        "kt_betting": vn.certificates.kt_betting_bound,
        "freegrad_betting": vn.certificates.freegrad_betting_bound,
    }, [(u, float(squares)) for u in (0.1, 1.0, 10.0, 1000.0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    arguments = parser.parse_args()
    with jax.enable_x64(True):
        print("regret / regret of coin_betting")
        print(f"{'':24}" + "".join(f"{name:>26}" for name in LEARNERS))
        for (name, label), regrets in measure(arguments.rounds).items():
            ratios = [
                np.exp(np.mean(np.log(np.maximum(r, 1e-3) / regrets["coin_betting"])))
                for r in regrets.values()
            ]
            print(f"{name + ', ' + label:24}" + "".join(f"{ratio:26.2f}" for ratio in ratios))
        functions, cases = bounds(arguments.rounds)
        print(
            f"\nbound / bound of thm:fullonedolo, {arguments.rounds} coins of size one, epsilon = 1"
        )
        for u, squares in cases:
            first = float(vn.certificates.thm_fullonedolo(u, squares))
            row = [f"{name} {float(f(u, squares)) / first:.2f}" for name, f in functions.items()]
            print(f"u = {u:<8g}" + ", ".join(row))


if __name__ == "__main__":
    main()
