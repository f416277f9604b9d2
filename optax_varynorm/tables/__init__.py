"""Tables in files, read a batch of rows at a time and made into features for linear models."""

from optax_varynorm.tables.errors import DataError
from optax_varynorm.tables.opening import ReadSettings, open_table
from optax_varynorm.tables.scanning import scan
from optax_varynorm.tables.schema import Schema

__all__ = ["DataError", "ReadSettings", "Schema", "open_table", "scan"]
