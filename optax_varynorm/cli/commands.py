"""Every command, by importing its module."""

from optax_varynorm.cli import bench
from optax_varynorm.cli.app import app

__all__ = ["app", "bench"]
