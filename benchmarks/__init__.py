"""Measurements, as ratios inside one run: ``make bench``."""
