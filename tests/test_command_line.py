"""``varynorm fit`` learns what the estimators learn, and ``predict`` says what they say."""

import csv
import io
import json
import re

import numpy as np
import pytest

from optax_varynorm import cli
from optax_varynorm.cli import choosing, learning, model_file
from optax_varynorm.cli.loss_curve import MOST_BLOCKS, LossCurve
from optax_varynorm.estimators import VaryNormClassifier, VaryNormRegressor, saving, stream
from optax_varynorm.tables.schema import Target
from tests.command_line import coefficients, content, people, run

COMMANDS = ("fit", "predict", "race", "bench")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_fit_learns_what_the_estimator_learns(folder):
    text, features, classes = people(500)
    (folder / "people.csv").write_text(text)
    result = run("fit", "people.csv", "--target", "income", "--report", "out.html")
    assert "500 rows, 5 features (3 columns, 1 categorical, 1 with missing values)" in result.stderr
    assert "classes 'high', 'low'; logistic loss" in result.stderr

    # In the columns' order, and in one piece.
    expected = VaryNormClassifier().fit(features, classes)
    weights = np.append(expected.coef_, expected.intercept_)
    np.testing.assert_array_equal(coefficients(folder / "people.varynorm"), weights)
    assert f"loss {expected.progressive_loss_:.4g} " in result.stdout
    share = np.mean(classes)
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert f"hindsight: {entropy:.4g}" in result.stdout
    wrong = np.mean((expected.progressive_predictions_ > 0) != classes)
    assert f"{wrong:.2%} wrong" in result.stdout
    page = (folder / "out.html").read_text()
    assert "<svg" in page
    assert f"{expected.progressive_loss_}" in page

    # Other rows, columns in another order, one more column, no target.
    text, features, _ = people(50, seed=1)
    table = [*csv.reader(io.StringIO(text))]
    shuffled = "".join(f"{score},x,{city},{age}\n" for age, city, score, _ in table[1:])
    (folder / "new.csv").write_text("score,remark,city,age\n" + shuffled)
    result = run("predict", "people.varynorm", "new.csv")
    assert "does not know: 'remark'" in result.stderr
    answers = [*csv.DictReader(io.StringIO(result.stdout))]
    labels = np.array(["high", "low"])[expected.predict(features)]
    assert [answer["prediction"] for answer in answers] == labels.tolist()
    for place, label in enumerate(("high", "low")):
        said = [float(answer[f"probability of {label}"]) for answer in answers]
        np.testing.assert_array_equal(said, expected.predict_proba(features)[:, place])

    run("predict", "people.varynorm", "new.csv", "--json", "--output", "answers.jsonl")
    lines = (folder / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line)["prediction"] for line in lines] == labels.tolist()


def test_numbers_are_learned_under_the_absolute_loss(folder):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 4)).astype(np.float32)
    targets = rows @ np.array([1.0, -2.0, 0.0, 0.5]) + 3
    lines = [
        f"{float(y)!r} " + " ".join(f"{i}:{float(x)!r}" for i, x in enumerate(row)) + "\n"
        for y, row in zip(targets, rows, strict=True)
    ]
    (folder / "rows.libsvm").write_text("".join(lines))
    result = json.loads(run("fit", "rows.libsvm", "--json", "-o", "m").stdout)
    expected = VaryNormRegressor().fit(rows, targets)
    assert result["loss"] == "absolute"
    assert result["progressive_loss"] == pytest.approx(expected.progressive_loss_)
    np.testing.assert_array_equal(coefficients(folder / "m")[:4], expected.coef_)
    said = run("predict", "m", "rows.libsvm").stdout.splitlines()
    np.testing.assert_allclose(np.array(said[1:], float), expected.predict(rows))


@pytest.mark.slow
def test_several_classes_have_probabilities_that_add_up(folder):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    names = np.array(["ash", "beech", "cedar"])[np.argmax(rows, axis=1)]
    body = "".join(
        f"{','.join(map(str, row))},{name}\n" for row, name in zip(rows, names, strict=True)
    )
    (folder / "trees.csv").write_text("a,b,c,tree\n" + body)
    result = json.loads(run("fit", "trees.csv", "--target", "tree", "--json").stdout)
    assert result["progressive_error_rate"] < 0.3
    assert result["best_constant_loss"] == pytest.approx(np.log(3), abs=0.05)
    answers = [*csv.DictReader(io.StringIO(run("predict", "trees.varynorm", "trees.csv").stdout))]
    assert np.mean([a["prediction"] == n for a, n in zip(answers, names, strict=True)]) > 0.9
    totals = [sum(float(a[f"probability of {n}"]) for n in np.unique(names)) for a in answers]
    np.testing.assert_allclose(totals, 1)


def test_more_rows_from_another_file_are_like_one_file(folder):
    text, *_ = people(120)
    lines = text.splitlines(keepends=True)
    (folder / "all.csv").write_text(text)
    (folder / "first.csv").write_text("".join(lines[:81]))
    (folder / "second.csv").write_text(lines[0] + "".join(lines[81:]))
    target = ("--target", "income")
    run("fit", "all.csv", *target)
    compiled = stream._play_chunk._cache_size()
    run("fit", "first.csv", *target)
    run("fit", "second.csv", "--resume", "first.varynorm")
    assert stream._play_chunk._cache_size() == compiled, "compiled once for all files and batches"
    (_, arrays), (_, expected) = (
        content(folder / "first.varynorm"),
        content(folder / "all.varynorm"),
    )
    assert arrays == expected
    model = model_file.load(folder / "first.varynorm")
    assert model.curve.rows == model.estimator.t_ == 120


@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        ((0.0, 1.0), "logistic"),
        ((0.5, 1.5), "logistic"),
        (("a", "b", "c"), "logistic"),
        (tuple(map(float, range(20))), "logistic"),
        (tuple(map(float, range(21))), "absolute"),
        ((0.0, 0.5, 1.0), "absolute"),
        (None, "absolute"),
    ],
)
def test_the_loss_is_guessed_from_the_target(labels, loss):
    assert choosing.guess_loss(Target("y", labels)) == loss


def test_a_saved_estimator_fits_only_its_own_state():
    rows = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    model = VaryNormClassifier().fit(rows, rows[:, 0] > 0)
    with pytest.raises(ValueError, match="0, 1, 2"):
        saving.to_arrays(VaryNormClassifier().fit(rows, np.where(rows[:, 0] > 0, "a", "b")))
    settings, arrays = saving.to_arrays(model.fit(rows, (rows[:, 0] > 0).astype(int)))
    name = next(name for name in arrays if name.endswith("played_point"))
    with pytest.raises(ValueError, match="played_point"):
        saving.from_arrays(settings, arrays | {name: arrays[name][:, :2]})


def test_the_loss_curve_keeps_every_loss_in_few_blocks():
    losses = np.random.default_rng(0).random(5000)
    curve = LossCurve()
    for piece in np.split(losses, [1, 7, 700, 701, 3000]):
        curve.add(piece)
    assert len(curve.sums) <= MOST_BLOCKS
    for rows, mean in curve.points():
        assert mean == pytest.approx(np.mean(losses[:rows]), rel=1e-12)
    assert curve.points()[-1][0] == 5000
    again = LossCurve(**json.loads(json.dumps(curve.to_json())))
    assert again.points() == curve.points()


def test_batches_of_wide_rows_are_short():
    assert learning.rows_a_batch(10) == learning.MOST_ROWS_A_BATCH
    assert learning.rows_a_batch(2**20) * 2**20 <= learning.MOST_NUMBERS_A_BATCH
    assert learning.rows_a_batch(2**30) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command):
    printed = re.sub(r"\x1b\[[\d;]*m", "", run(command, "--help").stdout)
    assert f"varynorm {command}" in printed.split("Example")[1]
    assert command in run("--help").stdout


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install 'optax-varynorm\[cli\]'"):
        cli.main()
