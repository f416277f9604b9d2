"""Pictures of games, with matplotlib."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optax_varynorm.playing.game import Game

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_regret(games: Mapping[str, Game], axes: "Axes | None" = None) -> "Axes":
    """Regret by round as lines, its certified bound as dashes of the same colour.

    Of a sweep, the median of all runs is drawn.

    Args:
      games: by name; each played with a ``comparator``.
      axes: where to draw; a new figure if ``None``.

    >>> import jax.numpy as jnp, optax_varynorm as vn
    >>> from matplotlib.figure import Figure
    >>> optimizer = vn.track_regret(vn.diagonal())
    >>> losses = lambda w, target: jnp.sum(jnp.abs(w - target))
    >>> targets = jnp.ones((100, 2))
    >>> game = vn.play(optimizer, losses, targets, jnp.zeros(2), comparator=jnp.ones(2))
    >>> axes = vn.plot_regret({"diagonal": game}, Figure().subplots())
    """
    axes = _axes(axes)
    for name, game in games.items():
        history = game.history
        if history.regret is None:
            raise ValueError(
                f"The game {name!r} has no regret. Play it with `comparator=` and an optimizer "
                "inside `vn.track_regret`."
            )
        rounds = np.arange(1, history.regret.shape[-1] + 1)
        (line,) = axes.plot(rounds, _median(history.regret), label=name)
        if history.bound is not None:
            axes.plot(
                history.bound_rounds,
                _median(history.bound),
                label=f"{name}, bound",
                color=line.get_color(),
                linestyle="--",
                marker=".",
            )
    axes.set(xlabel="round", ylabel="regret")
    axes.legend()
    return axes


def plot_race(games: Mapping[str, Game], axes: "Axes | None" = None) -> "Axes":
    """Mean loss so far, by round.

    Of a sweep, the median of all runs is drawn, and a band from the lowest to the highest.

    Args:
      games: by name.
      axes: where to draw; a new figure if ``None``.

    >>> import jax.numpy as jnp, optax, optax_varynorm as vn
    >>> from matplotlib.figure import Figure
    >>> losses = lambda w, target: jnp.sum(jnp.abs(w - target))
    >>> targets = jnp.ones((100, 2))
    >>> games = {
    ...     "diagonal": vn.play(vn.diagonal(), losses, targets, jnp.zeros(2)),
    ...     "sgd": vn.play(optax.sgd(0.1), losses, targets, jnp.zeros(2)),
    ... }
    >>> axes = vn.plot_race(games, Figure().subplots())
    """
    axes = _axes(axes)
    for name, game in games.items():
        rounds = np.arange(1, game.losses.shape[-1] + 1)
        progressive = np.cumsum(game.losses, axis=-1, dtype=np.float64) / rounds
        (line,) = axes.plot(rounds, _median(progressive), label=name)
        if progressive.ndim > 1:
            runs = progressive.reshape(-1, len(rounds))
            axes.fill_between(
                rounds, runs.min(axis=0), runs.max(axis=0), color=line.get_color(), alpha=0.15
            )
    axes.set(xlabel="round", ylabel="mean loss so far")
    axes.legend()
    return axes


def _median(values):
    return np.median(values.reshape(-1, values.shape[-1]), axis=0)


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Plots need matplotlib: `pip install 'optax-varynorm[plot]'`.") from error
    return pyplot.subplots()[1]
