"""The constants of ``vn.scale_invariant``, chosen without a look at the stream that they meet.

``python -m benchmarks.leave_one_out --data FOLDER`` plays a menu of settings on the streams of
``benchmarks.race``, in other orders of the rows (seeds 1 to 5; the race has seed 0), and prints
every mean log loss. A stream's excess is its loss over the lowest of the menu there, minus one. The
setting with the least mean excess is the choice for all; the one with the least mean over all
*other* streams is the choice for a stream, and its loss there is what the rule is worth.
"""

import argparse
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import optax_varynorm as vn
from benchmarks import results, streams
from optax_varynorm.racing import linear

SEEDS = (1, 2, 3, 4, 5)
# As good as nothing, and a number that every learner takes.
NOTHING = 1e-9


class Setting(NamedTuple):
    """What the matrix, each feature's learner and the average may lose; see ``scale_invariant``."""

    matrix: float
    feature: float
    average: float
    stake: float = 0.5

    def __str__(self):
        average = f"average {self.average:g}, stake {self.stake:g}"
        average = "no average" if self.average == NOTHING else average
        return f"matrix {self.matrix:g}, feature {self.feature:g}, {average}"


MENU = [
    *(
        Setting(matrix, feature, average)
        for average in (NOTHING, 3.0)
        for matrix in (10.0, 30.0)
        for feature in (0.1, 0.3)
    ),
    Setting(30.0, 0.3, 1.0),
    Setting(30.0, 0.3, 10.0),
    Setting(30.0, 0.3, 30.0),
    *(Setting(30.0, 0.3, average, 0.1) for average in (3.0, 10.0, 30.0)),
    Setting(10.0, 0.3, 10.0),
    Setting(30.0, 0.1, 10.0, 0.1),
]


def learner(setting: Setting):
    """``vn.scale_invariant()`` with other constants."""
    matrix = vn.with_varying_norm(
        vn.feature_cover_norm("coordinate"),
        vn.scale_by_coin_betting(vn.ftrl_step(), vn.freegrad_betting(setting.matrix)),
    )
    features = vn.diagonal_scale_invariant(setting.feature, scale_learner=vn.freegrad_betting)
    return vn.around_average(vn.combine(matrix, features), setting.average, setting.stake)


@jax.jit
def mean_losses(settings, features, labels):
    """A row a setting, a column an order: all of them at once."""

    def mean_loss(setting, features, labels):
        return jnp.mean(linear.play(learner(setting), features, labels))

    by_order = jax.vmap(mean_loss, in_axes=(None, 0, 0))
    return jax.vmap(by_order, in_axes=(0, None, None))(settings, features, labels)


def play_menu(name, folder, rows) -> list[float]:
    """The loss of each setting on a stream, averaged over the orders."""
    orders = [streams.load(name, folder, rows, seed) for seed in SEEDS]
    arrays = (jnp.stack(column) for column in zip(*orders, strict=True))
    columns = Setting(*(jnp.array(column) for column in zip(*MENU, strict=True)))
    return np.mean(np.asarray(mean_losses(columns, *arrays), np.float64), axis=1).tolist()


def show(losses: dict[str, list[float]]) -> None:
    table = np.array([*losses.values()]).T
    excess = table / table.min(axis=0) - 1
    rows = [
        [str(setting), *(f"{loss:.4g}" for loss in row), f"{100 * mean:.2f} %"]
        for setting, row, mean in zip(MENU, table, excess.mean(axis=1), strict=True)
    ]
    count = len(losses)
    others = (excess.sum(axis=1, keepdims=True) - excess) / max(count - 1, 1)
    left_out = others.argmin(axis=0)
    held_out = excess[left_out, np.arange(count)].mean()
    rows.append(
        [
            "left out",
            *(f"{table[k, i]:.4g}" for i, k in enumerate(left_out)),
            f"{100 * held_out:.2f} %",
        ]
    )
    results.show(["mean log loss", *losses, "mean excess"], rows)
    print(f"\nchoice for all: {MENU[excess.mean(axis=1).argmin()]}")
    for name, k in zip(losses, left_out, strict=True):
        print(f"choice for {name} by the others: {MENU[k]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, help="a folder of LIBSVM files")
    parser.add_argument("--streams", help="names, with commas between; all if left out")
    parser.add_argument("--rows", type=int, help="play only the first rows of each stream")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    names = results.pick("--streams", arguments.streams, streams.available(arguments.data))
    losses = {}
    for name in names:
        losses[name] = play_menu(name, arguments.data, arguments.rows)
        print(f"{name}: {min(losses[name]):.4g} to {max(losses[name]):.4g}", flush=True)
        record = {"settings": [*map(str, MENU)], "seeds": SEEDS, "losses": losses}
        results.write(arguments.out / "leave_one_out.json", record)
    print()
    show(losses)


if __name__ == "__main__":
    main()
