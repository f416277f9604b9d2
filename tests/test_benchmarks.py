"""The benchmark suite runs; its figures are the business of ``make bench``."""

import json
import subprocess
import sys

import pytest

from tools import run_readme


@pytest.mark.slow
def test_the_smoke_version_prints_a_table_and_draws_a_plot(tmp_path):
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", "--smoke", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=run_readme.README.parent,
    ).stdout
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    assert all(name in printed for name in rows)
    assert all(value > 0 for value in rows.values())
    assert (tmp_path / "speed.png").stat().st_size > 10_000
