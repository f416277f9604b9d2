"""Measurements: ``make bench`` (speed), ``make bench-networks``, ``make bench-race``."""
