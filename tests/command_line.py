"""Running ``varynorm`` in this process, and files for it."""

import json
import zipfile

import numpy as np
from typer.testing import CliRunner

from optax_varynorm.cli import archive, model_file
from optax_varynorm.cli.commands import app

PEOPLE = "age,city,score,income\n"


def run(*arguments, expect=0):
    """The command's result, which has ``stdout`` and ``stderr``.

    Args:
      expect: its exit code, or several that it may have; a traceback is none of them.
    """
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    is_traceback = not isinstance(result.exception, SystemExit | None)
    if is_traceback or result.exit_code not in np.atleast_1d(expect):
        raise AssertionError(f"exit code {result.exit_code}\n{result.output}") from result.exception
    return result


def error(*arguments):
    """The one line of a data error."""
    result = run(*arguments, expect=1)
    (line,) = result.stderr.splitlines()
    return line


def people(rows, seed=0):
    """A CSV file of numbers, cities and missing values, and what it should become.

    Returns:
      The text; the features (age, age missing, Oslo, Rome, score); the classes.
    """
    rng = np.random.default_rng(seed)
    lines, features, classes = [], [], []
    for _ in range(rows):
        age, score = int(rng.integers(18, 90)), round(float(rng.normal()) * 1e4, 3)
        city = ("Oslo", "Rome")[int(rng.integers(2))]
        is_missing = rng.random() < 0.1
        is_high = score * 1e-4 + (age - 50) / 30 + (city == "Rome") > 0.5 + 0.3 * rng.normal()
        lines.append(f"{'?' if is_missing else age},{city},{score},{'high' if is_high else 'low'}")
        shown = [0, 1] if is_missing else [age, 0]
        features.append([*shown, city == "Oslo", city == "Rome", score])
        classes.append(0 if is_high else 1)
    text = PEOPLE + "\n".join(lines) + "\n"
    return text, np.array(features, np.float32), np.array(classes)


def coefficients(path):
    estimator = model_file.load(path).estimator
    return np.append(estimator.coef_, estimator.intercept_)


def content(path):
    """The header and the arrays' bytes of a model file."""
    with zipfile.ZipFile(path) as stored:
        header = json.loads(stored.read(archive.HEADER))
        arrays = {n: stored.read(n) for n in stored.namelist() if n != archive.HEADER}
    return header, arrays
