"""A page about a run: text, tables and figures in one HTML file that needs nothing else."""

from optax_varynorm.report.machine import how_it_was_made
from optax_varynorm.report.page import Figure, Section, Table, write_report

__all__ = ["Figure", "Section", "Table", "how_it_was_made", "write_report"]
