"""The demo from beginning to end: what is played, and what is told about it."""

import math
from collections.abc import Callable
from typing import NamedTuple

from optax_varynorm.demo import experts, figures, race, rescaling, streams
from optax_varynorm.playing import Progress
from optax_varynorm.report import Figure, Section, Table

# Called with what is played now, and with how far it is.
Watch = Callable[[str, Progress], None]
# Called with what was played, and with what came of it.
Done = Callable[[str, str], None]

COLUMNS = ("stream", "learner", "features", "mean loss", "10x off", "rates", "time")
TITLE = "Without a learning rate"
FAILED = "failed"
SUMMARY = (
    "One pass over real streams, each example predicted before it is learned from. The learners of "
    "optax_varynorm have no learning rate and see raw units. AdaGrad, Adam and SGD are shown with "
    "every learning rate of a grid, twice: with features standardized by their running mean and "
    "variance, as people use them, and in raw units. Means of eight orders of the rows (of one, "
    "for the experts). The constants of scale_invariant were chosen on thirteen streams, "
    "breast_cancer and digits among them; diabetes was not."
)
EXPLANATION = (
    "mean loss: log loss over all rounds, for peers with the learning rate that was best in "
    "hindsight. 10x off: with a rate ten times too large or too small, the worse of both; "
    f"{FAILED}: infinite there, the truth got a probability of zero. rates: how many were tried."
)


class Races(NamedTuple):
    """Everything that was played.

    Attributes:
      linear: the results of each stream, by its name; the first learner is this package's.
      mixture: those of the experts on the simplex.
      rescaled: those of the first stream with a column in other units.
    """

    linear: dict[str, list[race.Result]]
    mixture: list[race.Result]
    rescaled: rescaling.Rescaled


def play(watch: Watch, done: Done = lambda name, what: None) -> Races:
    """All races."""

    def follow(name, play_one, *arguments, **settings):
        result = play_one(*arguments, lambda progress: watch(name, progress), **settings)
        done(name, f"mean loss {result.loss:.3f}")
        return result

    linear = {}
    first = streams.breast_cancer()
    for stream in (first, streams.digits(), streams.diabetes()):
        results = [follow(f"{stream.name}: {race.OURS}", race.play_ours, stream)]
        for peer in race.PEERS:
            for units in (race.STANDARDIZED, race.RAW):
                name = f"{stream.name}: {peer}, {units}"
                results.append(follow(name, race.play_peer, peer, stream, units=units))
        linear[stream.name] = results
    in_raw_units = [result for result in linear[first.name] if result.units == race.RAW]
    probabilities = experts.advice(in_raw_units[1:])
    mixture = [
        follow(f"experts: {name}", play_one, probabilities)
        for name, play_one in (
            (experts.OURS, experts.play_ours),
            (experts.PEER, experts.play_peer),
        )
    ]

    name = "a column in other units"
    rescaled = rescaling.play(first, in_raw_units, lambda progress: watch(name, progress))
    done(name, "drawn on the page")
    return Races(linear, mixture, rescaled)


def table(races: Races) -> list[tuple[str, ...]]:
    """One row a stream, learner and kind of features, under ``COLUMNS``."""
    return [
        (
            stream,
            result.learner,
            result.units or "-",
            f"{result.loss:.3f}",
            _number(result.loss_off_by(10.0)),
            "0" if result.rates is None else str(len(result.rates)),
            f"{result.seconds:.1f}",
        )
        for stream, results in {**races.linear, "experts": races.mixture}.items()
        for result in results
    ]


def claims(races: Races) -> list[str]:
    """What the race shows, and what it does not: each comparison with its own peers."""
    total = len(races.linear)

    def wins(units, loss_of):
        return sum(
            ours.loss < min(loss_of(peer) for peer in peers if peer.units == units)
            for ours, *peers in races.linear.values()
        )

    def best(result):
        return result.loss

    def off(result):
        return result.loss_off_by(10.0)

    return [
        f"Units: against peers in raw units with their best rate, {race.OURS} has the lowest mean "
        f"loss on {wins(race.RAW, best)} of {total} streams.",
        f"Tuning: against peers with standardized features and their best rate in hindsight, which "
        f"nobody knows in advance, on {wins(race.STANDARDIZED, best)} of {total}; with a rate ten "
        f"times off, on {wins(race.STANDARDIZED, off)} of {total}.",
    ]


def sections(races: Races) -> list[Section]:
    """The page's."""
    first = next(iter(races.linear))
    result = Table(
        f"{EXPLANATION} time: seconds for all orders and rates together, with compiling where a "
        "learner plays first; its other rows reuse that.",
        COLUMNS,
        table(races),
    )
    parts = [Section("Result", "\n\n".join(claims(races)), [result])]
    for stream, results in races.linear.items():
        ours, *peers = results
        drawings = [
            *(
                Figure(
                    f"{stream}: mean loss so far, median and range of {race.ORDERS} orders; peers "
                    f"{how}, with the rate that was best in hindsight.",
                    figures.progressive_loss([ours, *(p for p in peers if p.units == units)]),
                )
                for units, how in (
                    (race.STANDARDIZED, "with standardized features"),
                    (race.RAW, "in raw units"),
                )
            ),
            Figure(
                f"{stream}: mean loss against the learning rate; dashed in raw units. The line has "
                f"no rate. Losses above {figures.WORST_SHOWN:.0f} are drawn there.",
                figures.learning_rates(results),
            ),
            Figure(
                f"{stream}: regret against the weights of a logistic regression of all rows "
                "(linearized losses), and the certified bound for these gradients.",
                figures.regret(ours),
            ),
        ]
        if stream == first:
            drawings.append(
                Figure(
                    f"{stream}: its first column in other units. Peers, in raw units too, keep the "
                    "learning rate that was best before. Standardized ones would not change.",
                    figures.rescaling(races.rescaled),
                )
            )
        parts.append(Section(stream, "", drawings))
    parts.append(
        Section(
            "Experts on the simplex",
            f"The experts are the peers on {first} in raw units with all their learning rates; the "
            "weights of their mixture are learned. The usual learner of weights has a learning "
            "rate again.",
            [
                Figure("Mean loss so far.", figures.progressive_loss(races.mixture)),
                Figure(
                    "Mean loss against the learning rate. It is infinite where all weight went to "
                    "experts who later gave the truth a probability of zero.",
                    figures.learning_rates(races.mixture),
                ),
            ],
        )
    )
    return parts


def _number(value: float) -> str:
    if not math.isfinite(value):
        return FAILED
    return f"{value:.3f}" if value < 100 else f"{value:.2g}"
