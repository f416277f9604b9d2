"""Every command, by importing its module."""

from optax_varynorm.cli import bench, demo, regret
from optax_varynorm.cli.app import app

__all__ = ["app", "bench", "demo", "regret"]
