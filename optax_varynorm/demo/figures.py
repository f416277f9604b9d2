"""What the demo draws, one panel a figure: a phone shows them one below the other."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import optax_varynorm as vn
from optax_varynorm.demo.race import RAW, Result
from optax_varynorm.demo.rescaling import Rescaled

# Middle tones, for light and for dark paper.
COLOURS = ("#2f81f7", "#e8590c", "#2da44e", "#bf4b8a")
# A guess of one half costs log 2. What is much worse is drawn at the upper edge.
WORST_SHOWN = 10.0


def progressive_loss(results: Sequence[Result]) -> Figure:
    """Mean loss so far; each peer with the learning rate that was best in hindsight."""
    figure, axes = _panel()
    games = {
        _with_rate(result): result.game._replace(
            history=result.game.history._replace(losses=result.best_losses)
        )
        for result in results
    }
    vn.plot_race(games, axes)
    highest = max(float(np.mean(result.best_losses[..., :20])) for result in results)
    axes.set_ylim(0, 1.5 * min(highest, 2.0))
    return figure


def learning_rates(results: Sequence[Result]) -> Figure:
    """Mean loss against the learning rate: a curve for who has one, a line for who has not.

    A learner has one colour; its curve is dashed in raw units.
    """
    figure, axes = _panel()
    learners = dict.fromkeys(result.learner for result in results)
    colours = dict(zip(learners, COLOURS, strict=False))
    for result in results:
        colour = colours[result.learner]
        if result.rates is None:
            axes.axhline(result.loss, color=colour, label=result.label, linewidth=2.5)
        else:
            shown = np.minimum(result.mean_losses, WORST_SHOWN)
            style = ".--" if result.units == RAW else ".-"
            axes.plot(result.rates, shown, style, color=colour, label=result.label)
    axes.set(xlabel="learning rate", ylabel="mean loss", xscale="log", yscale="log")
    # Seven curves leave no room for it inside.
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def regret(result: Result) -> Figure:
    """Against the best weights in hindsight, and what was proven in advance."""
    figure, axes = _panel()
    vn.plot_regret({result.learner: result.game}, axes)
    axes.set_yscale("symlog", linthresh=1.0)
    return figure


def rescaling(rescaled: Rescaled) -> Figure:
    """Mean loss against what one column was multiplied by."""
    figure, axes = _panel()
    for colour, (name, losses) in zip(COLOURS, rescaled.losses.items(), strict=False):
        shown = np.minimum(losses, WORST_SHOWN)
        axes.plot(rescaled.factors, shown, ".-", color=colour, label=name)
    axes.set(xlabel="one column, multiplied by", ylabel="mean loss", xscale="log", yscale="log")
    axes.legend()
    return figure


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_prop_cycle(color=COLOURS)
    axes.grid(alpha=0.25)
    return figure, axes


def _with_rate(result: Result) -> str:
    if result.rates is None:
        return result.label
    return f"{result.label}, best rate {result.rates[result.best]:.0e}"
