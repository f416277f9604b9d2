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


@pytest.mark.slow
def test_portfolios_on_a_synthetic_market(tmp_path):
    printed = subprocess.run(
        f"{sys.executable} -m benchmarks.portfolio --market=synthetic --days=50 --out={tmp_path}",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        cwd=run_readme.README.parent,
    ).stdout
    report = json.loads((tmp_path / "portfolio.json").read_text())
    assert all(name in printed for name in report["log_wealth"])
    assert not any(report["inaccurate_projections"].values())
    best = report["log_wealth"].pop("best constant portfolio in hindsight")
    assert best > report["log_wealth"]["uniform, rebalanced daily"]
