"""The online game, played: one run, many at once, and pictures of them."""

from optax_varynorm.playing.game import Game, Progress
from optax_varynorm.playing.history import History
from optax_varynorm.playing.play import play
from optax_varynorm.playing.plots import plot_race, plot_regret
from optax_varynorm.playing.sweep import sweep

__all__ = ["Game", "History", "Progress", "play", "plot_race", "plot_regret", "sweep"]
