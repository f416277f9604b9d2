"""The demo from beginning to end: what is played, and what is told about it."""

from collections.abc import Callable
from typing import NamedTuple

from optax_varynorm.demo import experts, figures, race, rescaling, streams
from optax_varynorm.playing import Progress
from optax_varynorm.report import Figure, Section, Table

# Called with what is played now, and with how far it is.
Watch = Callable[[str, Progress], None]

COLUMNS = ("stream", "learner", "loss", "10x off", "rates", "seconds")
TITLE = "Without a learning rate"
SUMMARY = (
    "One pass over real streams in raw units, each example predicted before it is learned from. "
    "AdaGrad, Adam and SGD are shown with every learning rate of a grid; the learners of "
    "optax_varynorm have none. Means of eight orders of the rows (of one, for the experts). The "
    "constants of scale_invariant were chosen on thirteen streams, breast_cancer and digits "
    "among them; diabetes was not."
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


def play(watch: Watch) -> Races:
    """All races."""

    def report(name):
        return lambda progress: watch(name, progress)

    linear = {}
    first = streams.breast_cancer()
    for stream in (first, streams.digits(), streams.diabetes()):
        ours = race.play_ours(stream, report(f"{stream.name}: {race.OURS}"))
        peers = [race.play_peer(n, stream, report(f"{stream.name}: {n}")) for n in race.PEERS]
        linear[stream.name] = [ours, *peers]
    probabilities = experts.advice(linear[first.name][1:])
    mixture = experts.play(probabilities, report(f"{probabilities.shape[1]} experts"))
    rescaled = rescaling.play(first, linear[first.name], report("a column in other units"))
    return Races(linear, mixture, rescaled)


def table(races: Races) -> list[tuple[str, ...]]:
    """One row a stream and learner, under ``COLUMNS``."""
    return [
        (
            stream,
            result.learner,
            f"{result.loss:.3f}",
            _number(result.loss_off_by(10.0)),
            "0" if result.rates is None else str(len(result.rates)),
            f"{result.seconds:.1f}",
        )
        for stream, results in {**races.linear, "experts": races.mixture}.items()
        for result in results
    ]


def sections(races: Races) -> list[Section]:
    """The page's."""
    first = next(iter(races.linear))
    result = Table(
        "Mean log loss, for peers with the best learning rate in hindsight; then with one that is "
        "ten times too large or too small, the worse of both; how many learning rates were tried; "
        "seconds for all orders and rates together, with compiling (for breast_cancer "
        "only: the other streams reuse what it compiled).",
        COLUMNS,
        table(races),
    )
    parts = [Section("Result", "", [result])]
    for stream, results in races.linear.items():
        drawings = [
            Figure(
                f"{stream}: mean loss so far, median and range of {race.ORDERS} orders.",
                figures.progressive_loss(results),
            ),
            Figure(
                f"{stream}: mean loss against the learning rate. The line has none. Losses above "
                f"{figures.WORST_SHOWN:.0f} are drawn there.",
                figures.learning_rates(results),
            ),
            Figure(
                f"{stream}: regret against the weights of a logistic regression of all rows "
                "(linearized losses), and the certified bound for these gradients.",
                figures.regret(results[0]),
            ),
        ]
        if stream == first:
            drawings.append(
                Figure(
                    f"{stream}: its first column in other units. Peers keep the learning rate that "
                    "was best before.",
                    figures.rescaling(races.rescaled),
                )
            )
        parts.append(Section(stream, "", drawings))
    parts.append(
        Section(
            "Experts on the simplex",
            f"The experts are the peers on {first} with all their learning rates; their mixture's "
            "weights are learned. The usual learner of weights has a learning rate again.",
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
    return f"{value:.3f}" if value < 100 else f"{value:.2g}"
