"""A model file that somebody has changed is refused in a line; one that is written is whole."""

import errno
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from optax_varynorm.cli import archive, header, model_file
from optax_varynorm.cli.kinds import UnfitError
from optax_varynorm.tables.schema import Categorical, Schema, Target
from tests.attacks_on_models import REFUSED, entries_of, with_header, zipped
from tests.command_line import content, error, people, run


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "people.csv").write_text(people(40)[0])
    run("fit", folder / "people.csv", "--target", "income", "-o", folder / "model")
    return (folder / "model").read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text(people(40)[0])
    return tmp_path


def changed(saved, *path, **new):
    """The header with another value at a path; without one, the place is gone."""
    found = json.loads(entries_of(saved)[archive.HEADER])
    parent = found
    for name in path[:-1]:
        parent = parent[name]
    del parent[path[-1]]
    if new:
        parent[path[-1]] = new["to"]
    return found


FIELDS = {
    (): "estimator schema source curve wrong label_counts",
    ("estimator",): "kind parameters classes features dtype rows loss_sum weight_sum",
    ("estimator", "parameters"): "loss learner epsilon",
    ("schema",): "target columns sparse_width",
    ("schema", "columns", 1): "name has_missing categories",
    ("source",): "name fingerprint rows learned",
    ("curve",): "rows_a_block rows sums",
}
PATHS = [(*path, name) for path, names in FIELDS.items() for name in names.split()]


def test_what_was_saved_passes(saved):
    header.check(json.loads(entries_of(saved)[archive.HEADER]))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_every_field_of_the_header_is_looked_at(saved, path):
    with pytest.raises(UnfitError):
        header.check(changed(saved, *path))
    for value in ([[]], {"a": 1}, -1, "\ud800"):
        with pytest.raises(UnfitError):
            header.check(changed(saved, *path, to=value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("estimator", "features"), 10**12),
        (("estimator", "features"), 4),
        (("estimator", "classes"), 10**9),
        (("estimator", "classes"), 3),
        (("estimator", "weight_sum"), 0),
        (("estimator", "rows"), True),
        (("estimator", "rows"), 41),
        (("estimator", "dtype"), "float64"),
        (("estimator", "parameters", "epsilon"), float("nan")),
        (("schema", "target", "labels"), []),
        (("schema", "target", "labels"), ["high", "high"]),
        (("schema", "target", "labels"), ["low", "high"]),
        (("schema", "target", "labels"), [0, "low"]),
        (("schema", "target", "name"), "age"),
        (("schema", "columns"), []),
        (("schema", "columns", 1, "categories"), ["Oslo", "Oslo"]),
        (("schema", "sparse_width"), 5),
        (("source", "learned"), 41),
        (("curve", "sums"), [0.5]),
        (("wrong",), 41),
        (("label_counts",), [40]),
    ],
)
def test_the_parts_of_the_header_agree(saved, path, value):
    with pytest.raises(UnfitError):
        header.check(changed(saved, *path, to=value))


def test_a_large_claim_is_refused_before_anything_is_made(folder, saved, monkeypatch):
    """The header agrees with itself, and not with the arrays."""
    claim = changed(saved, "estimator", "features", to=10**12)
    claim["schema"] |= {"columns": [], "sparse_width": 10**12}
    header.check(claim)
    (folder / "large").write_bytes(with_header(saved, claim))
    assert error("predict", "large", "people.csv") == f"varynorm: large: {REFUSED}"
    claim["estimator"]["features"] = claim["schema"]["sparse_width"] = 6
    (folder / "six").write_bytes(with_header(saved, claim))
    monkeypatch.setattr(archive.Archive, "arrays", None)
    claim["estimator"]["features"] = claim["schema"]["sparse_width"] = 20
    (folder / "twenty").write_bytes(with_header(saved, claim))
    assert error("predict", "twenty", "people.csv") == f"varynorm: twenty: {REFUSED}"


def test_entries_are_those_that_were_written(folder, saved):
    inside = entries_of(saved)
    name = next(name for name in inside if name.endswith("played_point.npy"))
    pickled = b"\x93NUMPY\x01\x00\x76\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    bad = {
        "another": zipped((inside | {"../../another.npy": inside[name]}).items()),
        "pickled": zipped((inside | {name: pickled.ljust(127) + b"\n" + bytes(8)}).items()),
        "longer": zipped((inside | {name: inside[name] + b"\0"}).items()),
        "lzma": zipped(inside.items(), zipfile.ZIP_LZMA),
        "deep": with_header(saved, b"[" * 10**5 + b"]" * 10**5),
        "cut": saved[: len(saved) // 2],
    }
    encrypted = bytearray(saved)
    encrypted[encrypted.rindex(b"PK\x01\x02") + 8] |= archive.IS_ENCRYPTED
    bad["encrypted"] = bytes(encrypted)
    with pytest.warns(UserWarning, match="Duplicate name"):
        bad["twice"] = zipped([*inside.items(), (name, inside[name])])
    for kind, attacked in bad.items():
        (folder / kind).write_bytes(attacked)
        assert error("predict", kind, "people.csv") == f"varynorm: {kind}: {REFUSED}"


def battery(count):
    """Its table, from a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.attacks", str(count)],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("count", [12, pytest.param(900, marks=pytest.mark.slow)])
def test_no_attack_ends_in_a_traceback_or_needs_a_gigabyte(count):
    printed = battery(count)
    print(printed)
    assert "no traceback" in printed
    assert printed.count("\n| ") == 11


def test_large_arrays_are_not_compressed_so_that_they_can_be_read(folder, monkeypatch):
    monkeypatch.setattr(archive, "BYTES_FOR_ALL", 2**20)
    path = pathlib.Path("zeros")
    for size in (1000, 10**6):
        arrays = {"a/b": np.zeros((2, size), np.float32), "flag": np.array(True)}
        archive.write(path, {"x": 1}, arrays)
        with archive.opened(path) as stored:
            assert stored.header == {"x": 1}
            for name, array in stored.arrays().items():
                np.testing.assert_array_equal(array, arrays[name], strict=True)
    with zipfile.ZipFile(path) as stored:
        assert stored.getinfo("a/b.npy").compress_type == zipfile.ZIP_STORED


def test_names_that_are_too_long_for_a_header_are_refused_before_learning(monkeypatch):
    schema = Schema(Target("y", None), (Categorical("x", False, ("a" * 1000,)),))
    model_file.require_moderate(schema, pathlib.Path("rows.csv"))
    monkeypatch.setattr(model_file, "MOST_BYTES_OF_SCHEMA", 1000)
    with pytest.raises(model_file.DataError, match="--drop"):
        model_file.require_moderate(schema, pathlib.Path("rows.csv"))


def fail_with(number):
    def fail(*arguments, **settings):
        raise OSError(number, os.strerror(number))

    return fail


def test_a_full_disk_leaves_the_old_model_and_says_so(folder, saved, monkeypatch):
    (folder / "model").write_bytes(saved)
    before = {*folder.iterdir()}
    for where in ("replace", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(archive.os, where, fail_with(errno.ENOSPC))
            line = run("fit", "people.csv", "--target", "income", "-o", "model", expect=1).stderr
        assert "model: the model cannot be saved: No space left on device." in line
        assert "The model that was there is as it was." in line
        assert (folder / "model").read_bytes() == saved
        assert {*folder.iterdir()} == before, "nothing is left of the new one"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="of Linux")
def test_answers_on_a_full_disk_end_in_one_line(folder, saved):
    (folder / "model").write_bytes(saved)
    line = error("predict", "model", "people.csv", "--output", "/dev/full")
    assert line == "varynorm: No space left on device"


def test_a_folder_that_cannot_be_written_to_is_found_out_before_learning(folder, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode, **_: mode != os.W_OK)
    line = error("fit", "people.csv", "--target", "income")
    assert line == "varynorm: people.varynorm: nothing can be written to the folder .."


def test_a_folder_in_place_of_a_file_ends_in_one_line(folder, saved):
    (folder / "model").write_bytes(saved)
    (folder / "out").mkdir()
    assert "out: Is a directory" in error("predict", "model", "people.csv", "--output", "out")
    assert "out: exists and is not a model" in error(
        "fit", "people.csv", "--target", "income", "-o", "out"
    )


def test_two_processes_that_write_one_model_do_not_meet(folder, saved, monkeypatch):
    """One saves while the other is about to."""
    (folder / "model").write_bytes(saved)
    expected = content("model")
    model = model_file.load(pathlib.Path("model"))
    replace = os.replace

    def other_process_first(partial, path):
        monkeypatch.setattr(archive.os, "replace", replace)
        model_file.save(pathlib.Path("model"), model._replace(wrong=0))
        assert content("model")[0]["wrong"] == 0
        replace(partial, path)

    monkeypatch.setattr(archive.os, "replace", other_process_first)
    model_file.save(pathlib.Path("model"), model)
    assert content("model") == expected
    assert sorted(path.name for path in folder.iterdir()) == ["model", "people.csv"]
