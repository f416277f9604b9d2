"""What is wrong with a file is said in one line, and the exit code is 1."""

import gzip
import json
import zipfile

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.command_line import error, people, run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder):
    """Learned from columns age, city, score; the target is income."""
    (folder / "people.csv").write_text(people(40)[0])
    run("fit", "people.csv", "--target", "income", "-o", "model")
    return "model"


# The file, and pieces of the line, which begins with the file's name.
FILES = {
    "empty": ("", ["empty"]),
    "only a header": ("a,y\n", ["no row"]),
    "not a number": ("a,b,y\n1,2,0\n1,x,1\n", ["row 2", "column 'b'", "'x'", "--categorical b"]),
    "not a number, late": (
        "a,y\n" + "1.5,0\n" * 20_000 + "oops,1\n",
        ["row 20001", "column 'a'", "'oops'"],
    ),
    "ragged, short": ("a,b,y\n1,2,0\n3,1\n", ["row 2", "2 fields", "3 are expected"]),
    "ragged, long": ("a,b,y\n1,2,0\n3,1,1\n1,2,3,4\n", ["row 3", "4 fields"]),
    "ragged, after empty lines": ("\n\na,y\n1,0\n\n3,1\n1\n", ["row 3", "1 fields"]),
    "ragged, late": ("a,y\n" + "1.5,0\n" * 300_000 + "1\n", ["row 300001", "1 fields"]),
    "missing target": ("a,y\n1,0\n2,\n", ["row 2", "column 'y'", "missing"]),
    "infinite": ("a,y\n1,0\ninf,1\n", ["row 2", "column 'a'", "inf"]),
    "too large for float32": ("a,y\n1e39,0\n1,1\n", ["row 1", "column 'a'", "1e+39"]),
    "two columns of a name": ("a,a,y\n1,2,3\n", ["'a'", "rename"]),
    "one class": ("a,y\n1,u\n2,u\n", ["'y'", "every row"]),
    "no features": ("y\n0\n1\n", ["no column to predict 'y' from"]),
    "only a mark": (b"\xef\xbb\xbf", ["empty"]),
    "only a mark and empty lines": (b"\xef\xbb\xbf\r\n\n", ["empty"]),
    "a long name": ("a" * 131_073 + ",y\n1,0\n", ["the first line", "131072", "--delimiter"]),
    "a quotation mark": ('a,y\n"1,0\n' + "1,0\n" * 600_000, ["megabyte", "quotation mark"]),
    "ragged, in Latin-1": (b"a,y\n1,0\n\xf6,1,2\n", ["row 2", "3 fields"]),
    "a ZIP archive": (b"PK\x03\x04\x14\x00\x08\xb3", ["not UTF-8 text", "ZIP", "CSV, parquet"]),
    "compressed": (gzip.compress(b"a,y\n1,0\n"), ["not UTF-8 text", "gzip", ".gz"]),
    "UTF-16": ("a,y\n1,0\n".encode("utf-16"), ["not UTF-8 text", "UTF-16", "save it as UTF-8"]),
    "a header in Latin-1": ("größe,y\n1,0\n".encode("latin-1"), ["not UTF-8", "encoding"]),
    "zeros": (b"a,y\n1,0\n" + bytes(8), ["not UTF-8 text", "binary"]),
    "not text": (b"a,y\n\xff\xfe,0\n1,1\n", ["row 1", "column 'a'", "UTF8"]),
    "not text, late": (b"a,y\n" + b"1.5,0\n" * 300_000 + b"\xff,1\n", ["row 300001", "UTF8"]),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files(folder, name):
    content, pieces = FILES[name]
    (folder / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    line = error("fit", "bad.csv", "--target", "y")
    assert line.startswith("varynorm: bad.csv: ")
    assert all(piece in line for piece in pieces), line
    assert not (folder / "bad.varynorm").exists()


BAD_LABELS = [f"1 1:2\n{label} 1:3\n" for label in ("nan", "inf", "-inf", "1e39")]


@pytest.mark.parametrize(
    "rows", ["1 1:2\n-1 x:3\n", "1 1:2\n-1 3:1 2:1\n", "1 1:2\n-1 1:inf\n", *BAD_LABELS]
)
def test_bad_libsvm_rows(folder, rows):
    (folder / "bad.libsvm").write_text(rows)
    assert error("fit", "bad.libsvm").startswith("varynorm: bad.libsvm: row 2")


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.libsvm.gz"])
def test_a_file_that_is_cut_off(folder, name):
    """Past the first megabyte, which shows what kind of file it is."""
    digits = np.random.default_rng(0).integers(10**9, size=200_000)
    text = "".join(f"{i % 2} 1:{digit}\n" for i, digit in enumerate(digits))
    if "csv" in name:
        text = "y,x\n" + text.replace(" 1:", ",")
    (folder / name).write_bytes(gzip.compress(text.encode())[:-100_000])
    target = ("--target", "y") if "csv" in name else ()
    assert error("fit", name, *target).startswith(f"varynorm: {name}: ")


def test_a_file_that_is_missing(folder):
    assert error("fit", "nowhere.csv", "--target", "y") == "varynorm: nowhere.csv: no such file."
    assert error("predict", "nowhere", "x.csv") == "varynorm: nowhere: no such file."


def test_unknown_columns_are_answered_with_the_known_ones(folder):
    (folder / "rows.csv").write_text("a,b\n1,0\n2,1\n")
    for options in (["--target", "c"], ["--target", "b", "--drop", "c"]):
        line = error("fit", "rows.csv", *options)
        assert "c: there is no such column. The columns are 'a', 'b'." in line


def test_too_many_categories(folder):
    (folder / "rows.csv").write_text("name,y\n" + "".join(f"n{i},{i % 2}\n" for i in range(9)))
    line = error("fit", "rows.csv", "--target", "y", "--most-categories", 8)
    assert "'name' has more than 8 categories" in line
    assert "--drop name" in line


def test_losses_that_do_not_suit_the_target(folder):
    (folder / "rows.csv").write_text(
        "a,text,number\n" + "".join(f"1,t{i % 2},{i}\n" for i in range(1100))
    )
    drop = ("--drop", "text")
    assert "needs numbers" in error("fit", "rows.csv", "--target", "text", "--loss", "squared")
    assert "too many" in error("fit", "rows.csv", "--target", "number", "--loss", "hinge", *drop)


def test_few_numbers_are_classes_and_the_way_to_a_number_is_said(folder):
    rows = "".join(f"{i},{i % 5},{'ab'[i % 2]}\n" for i in range(25))
    (folder / "rows.csv").write_text("a,number,text\n" + rows)
    said = run("fit", "rows.csv", "--target", "number").stderr
    assert "'number' has 5 different numbers, so few that they are taken for classes." in said
    assert "To predict a number: --loss absolute" in said
    assert "taken" not in run("fit", "rows.csv", "--target", "number", "--loss", "hinge").stderr
    assert "taken" not in run("fit", "rows.csv", "--target", "text").stderr
    line = error("race", "rows.csv", "--target", "number")
    assert "has 5 classes" in line
    assert "To predict a number: --loss absolute" in line


def test_two_columns_of_one_name_in_parquet(folder):
    columns = [pa.array([1, 2]), pa.array([3, 4]), pa.array([0, 1])]
    pyarrow.parquet.write_table(pa.Table.from_arrays(columns, ["a", "a", "y"]), "rows.parquet")
    for command in ("fit", "race"):
        line = error(command, "rows.parquet", "--target", "y")
        assert line == "varynorm: rows.parquet: two columns have the name 'a'; rename one."


def test_too_little_memory_ends_in_one_line(folder, monkeypatch):
    (folder / "rows.libsvm").write_text("1 2000000000:1\n-1 3:1\n")

    def no_room(*arguments, **settings):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating")

    monkeypatch.setattr("optax_varynorm.cli.learning.learn", no_room)
    assert "not enough memory" in run("fit", "rows.libsvm", expect=1).stderr


def test_usage_errors_have_exit_code_2(folder):
    (folder / "rows.csv").write_text("a,b\n1,0\n2,1\n")
    assert "--target" in run("fit", "rows.csv", expect=2).stderr
    run("fit", "rows.csv", "--target", "b", "--loss", "cubic", expect=2)
    run("fit", "rows.csv", "--target", "b", "--quantile", "1.5", expect=2)
    run("fit", "rows.csv", "--target", "b", "--delimiter", "::", expect=2)
    run("fit", "rows.csv", "--target", "b", "--report", "nowhere/out.html", expect=2)


def test_files_that_are_no_models(folder, model):
    (folder / "rows.csv").write_text("a,b\n1,0\n2,1\n")
    message = "varynorm: rows.csv: not a model that `varynorm fit` has saved."
    assert error("predict", "rows.csv", "people.csv") == message
    line = error("fit", "people.csv", "--target", "income", "-o", "rows.csv")
    assert "rows.csv: exists and is not a model" in line
    assert (folder / "rows.csv").read_text() == "a,b\n1,0\n2,1\n"

    with zipfile.ZipFile("other.zip", "w") as archive:
        archive.writestr("header.json", "{}")
    assert "not a model" in error("predict", "other.zip", "people.csv")
    with zipfile.ZipFile(model) as old, zipfile.ZipFile("newer", "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "header.json":
                text = json.dumps(json.loads(text) | {"version": 2}).encode()
            new.writestr(name, text)
    assert "a model of version 2, and this package reads version 1" in error(
        "predict", "newer", "people.csv"
    )


def test_predict_needs_the_columns(folder, model):
    (folder / "new.csv").write_text("age,score\n30,1\n")
    line = error("predict", model, "new.csv")
    assert line == (
        "varynorm: new.csv: no column 'city', which the model needs. "
        "The columns are 'age', 'score'."
    )
    (folder / "new.libsvm").write_text("1 1:2\n")
    assert "learned from a CSV or parquet file" in error("predict", model, "new.libsvm")


def test_categories_never_seen_are_counted_and_have_no_feature(folder, model):
    (folder / "new.csv").write_text("age,city,score\n30,Paris,1\n30,Lima,1\n30,Rome,\n")
    result = run("predict", model, "new.csv")
    assert "new.csv: column 'city': 2 rows with a category never seen before" in result.stderr
    assert (
        "column 'score': 1 rows without a value, where all had one before, taken as 0"
        in result.stderr
    )
    _, paris, lima, rome = result.stdout.splitlines()
    assert paris == lima != rome


def test_resuming_needs_the_right_file(folder, model):
    line = error("fit", "people.csv", "--target", "income", "--resume", model)
    assert "has learned all 40 rows of people.csv already" in line
    line = error("fit", "people.csv", "--target", "city", "--resume", model)
    assert "the model's target is 'income', not 'city'" in line
    (folder / "new.csv").write_text("age,city,score,income\n30,Rome,1,middling\n")
    line = run("fit", "new.csv", "--resume", model, expect=1).stderr.splitlines()[-1]
    assert "row 1, column 'income': 'middling' is not one of the classes 'high', 'low'" in line
