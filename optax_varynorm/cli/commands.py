"""Every command, by importing its module; ``--help`` lists them in this order."""

# isort: off
from optax_varynorm.cli.app import app
from optax_varynorm.cli import fit
from optax_varynorm.cli import predict
from optax_varynorm.cli import race
from optax_varynorm.cli import bench
# isort: on

__all__ = ["app", "bench", "fit", "predict", "race"]
