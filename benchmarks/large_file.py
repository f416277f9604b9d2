"""Memory and speed of ``varynorm fit`` on a CSV file that is written for it.

``python -m benchmarks.large_file`` writes 1,000,000 rows of 20 numbers and a target to a temporary
folder, fits in another process, and prints rows a second and that process's peak memory;
``large_file.json`` goes to ``--out`` (default ``out/bench``).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks import results

ROWS_A_BLOCK = 50_000


def write_csv(path: pathlib.Path, rows: int, columns: int, seed: int = 0) -> None:
    """Numbers in units of many sizes; a linear model and noise decide the target, yes or no."""
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.integers(-3, 4, size=columns)
    weights = rng.normal(size=columns)
    names = ",".join([*(f"x{i}" for i in range(columns)), "y"])
    with open(path, "w") as file:
        file.write(f"{names}\n")
        for first in range(0, rows, ROWS_A_BLOCK):
            drawn = rng.normal(size=(min(ROWS_A_BLOCK, rows - first), columns))
            labels = np.where(drawn @ weights > rng.logistic(size=len(drawn)), "yes", "no")
            table = np.char.mod("%.6g", drawn * units)
            file.writelines(
                ",".join([*row, label]) + "\n" for row, label in zip(table, labels, strict=True)
            )


def peak_megabytes(process: subprocess.Popen) -> float:
    """The largest resident size of a process until it ends, from Linux's own high-water mark.

    Not by ``getrusage``, where a child starts with the size of the process that forked it.
    """
    status = pathlib.Path(f"/proc/{process.pid}/status")
    peak = 0
    while process.poll() is None:
        # A process that is starting or ending has none.
        marks = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if marks:
            peak = int(marks[0].split()[1])
        time.sleep(0.01)
    return peak / 1024


def measure(rows: int, columns: int, learner: str) -> dict:
    """Of a process that does nothing but this fit."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.csv"
        write_csv(path, rows, columns)
        megabytes = path.stat().st_size / 1e6
        command = [sys.executable, "-m", "optax_varynorm.cli", "fit", str(path), "--target", "y"]
        command += ["--json", "--learner", learner, "--output", f"{folder}/model.varynorm"]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peak = peak_megabytes(process)
        printed, _ = process.communicate()
        seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(process.returncode)
    return {
        "rows": rows,
        "columns": columns,
        "learner": learner,
        "file_megabytes": megabytes,
        "peak_megabytes": peak,
        "seconds_in_all": seconds,
        "fit": json.loads(printed),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--learner", default="default", help="default, diagonal or full_matrix")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    record = measure(arguments.rows, arguments.columns, arguments.learner)
    fit = record["fit"]
    print(
        f"{record['rows']:,} x {record['columns']} CSV of {record['file_megabytes']:.0f} MB, "
        f"learner {record['learner']}: {record['peak_megabytes']:.0f} MB at the peak, "
        f"{record['seconds_in_all']:.1f} s in all, both passes and compiling; "
        f"{fit['rows_per_second']:,.0f} rows/s in the second pass; "
        f"progressive loss {fit['progressive_loss']:.4f}"
    )
    results.write(arguments.out / "large_file.json", record)


if __name__ == "__main__":
    main()
