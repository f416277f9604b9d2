"""Every command, by importing its module."""

from optax_varynorm.cli import bench, demo, fit, predict, race, regret
from optax_varynorm.cli.app import app

__all__ = ["app", "bench", "demo", "fit", "predict", "race", "regret"]
