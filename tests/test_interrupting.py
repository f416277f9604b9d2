"""Ctrl-C and SIGTERM keep what was learned; a run that goes on ends where an unbroken one does."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import jax
import pytest

from optax_varynorm.cli import interrupting, learning, model_file
from tests.command_line import content, error, people, run
from tools import run_readme

ROWS = 2 * learning.MOST_ROWS_A_BATCH + 100


def interrupted_fit(folder, number, *arguments):
    """``varynorm fit`` in a process of its own, which gets a signal as soon as it learns."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, [run_readme.README.parent, *sys.path])),
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "optax_varynorm.cli", "fit", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    # The last line before learning; by now the signal waits for the batch to end.
    for line in process.stderr:
        if line.startswith("target"):
            process.send_signal(number)
            break
    printed, remarks = process.communicate(timeout=300)
    return process.returncode, printed, remarks


@pytest.mark.parametrize("number", interrupting.SIGNALS, ids=lambda number: number.name)
def test_a_run_that_was_interrupted_goes_on_to_the_same_model(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("the people.csv").write_text(people(ROWS)[0])
    run("fit", "the people.csv", "--target", "income", "-o", "unbroken")

    code, printed, remarks = interrupted_fit(
        tmp_path, number, "the people.csv", "--target", "income", "-o", "broken"
    )
    assert code == 130, remarks
    assert f"learned from {learning.MOST_ROWS_A_BATCH:,} rows so far (interrupted)" in printed
    source = model_file.load(pathlib.Path("broken")).source
    assert (source.learned, source.rows) == (learning.MOST_ROWS_A_BATCH, ROWS)
    assert content("broken") != content("unbroken")

    pathlib.Path("other.csv").write_text(people(10)[0])
    assert "First finish it: varynorm fit 'the people.csv'" in error(
        "fit", "other.csv", "--resume", "broken"
    )
    # As the run itself said.
    (command,) = re.findall(r"To go on: varynorm (.*)", remarks)
    run(*shlex.split(command))
    assert content("broken") == content("unbroken")


@pytest.fixture
def default_handlers():
    """As in a terminal: a shell makes what it runs in the background ignore Ctrl-C."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_second_interrupt_does_not_wait(default_handlers):
    with interrupting.deferred() as asked:
        signal.raise_signal(signal.SIGINT)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
