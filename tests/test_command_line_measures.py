"""``varynorm race`` and ``bench`` measure what they say; large files take little memory."""

import json
import shlex

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from benchmarks import large_file
from optax_varynorm.cli import bench, model_file, race
from optax_varynorm.racing import linear
from tests.command_line import error, people, run
from tools import run_readme


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def few_contenders(monkeypatch):
    """One of ours, one of Optax's, and three learning rates of SGD."""
    monkeypatch.setattr(race, "OURS", ("fixed_norm",))
    monkeypatch.setattr(race.peers, "RAW_UNIT_RATES", (1e-3, 1e-1, 1e1))
    monkeypatch.setattr(race.peers, "UNTUNED", {"dog": optax.contrib.dog})
    monkeypatch.setattr(race.peers, "TUNED", {"sgd": optax.sgd})
    monkeypatch.setattr(race.libraries, "is_installed", lambda package: False)


@pytest.mark.slow
@pytest.mark.usefixtures("few_contenders")
def test_the_race_plays_what_the_online_loop_plays(folder):
    text, features, classes = people(60)
    (folder / "people.csv").write_text(text)
    printed = run("race", "people.csv", "--target", "income", "--json").stdout
    result = json.loads(printed)
    assert [note.split()[-1] for note in result["notes"]] == ["vowpalwabbit", "river"]
    assert set(result["learners"]) == {"fixed_norm", "dog", "sgd"}

    def log_loss(params, example):
        row, label = example
        return optax.sigmoid_binary_cross_entropy(row @ params, label)

    rows = jnp.asarray(np.hstack([features, np.ones((60, 1), np.float32)]))
    labels = jnp.asarray(classes.astype(np.float32))
    rate = result["learners"]["sgd"]["learning_rate"]
    for name, optimizer in (("fixed_norm", vn.fixed_norm()), ("sgd", optax.sgd(rate))):
        game = vn.play(optimizer, log_loss, (rows, labels), jnp.zeros(6))
        expected = float(np.mean(np.asarray(game.losses)))
        assert result["learners"][name]["loss"] == pytest.approx(expected, rel=1e-4)
    table = run("race", "people.csv", "--target", "income", "--rows", 20, "--shuffle", 0).stdout
    assert "20 rows" in table
    assert "best constant in hindsight" in table


@pytest.mark.usefixtures("few_contenders")
def test_few_whole_numbers_may_be_predicted_as_numbers(folder, monkeypatch):
    streams = []

    def measure(contender, stream, loss):
        streams.append((stream, loss))
        return {"loss": 1.0, "examples_per_second": 1.0}

    monkeypatch.setattr(race.measuring, "measure", measure)
    (folder / "rows.csv").write_text("x,stars\n" + "".join(f"{i},{i % 5}\n" for i in range(25)))
    found = json.loads(
        run("race", "rows.csv", "--target", "stars", "--loss", "absolute", "--json").stdout
    )
    assert found["loss"] == "absolute loss"
    assert {loss for _, loss in streams} == {linear.absolute_loss}
    np.testing.assert_array_equal(streams[0][0].labels, np.arange(25) % 5)


@pytest.mark.slow
@pytest.mark.usefixtures("few_contenders")
def test_the_race_tells_one_class_from_the_rest_and_predicts_numbers(folder):
    lines = "".join(f"{i % 7},{'abc'[i % 3]},{i * 0.37}\n" for i in range(40))
    (folder / "rows.csv").write_text("x,letter,number\n" + lines)
    line = error("race", "rows.csv", "--target", "letter", "--drop", "number")
    assert "3 classes. Tell one of a, b, c from the others: --positive LABEL" in line
    chosen = ("--target", "letter", "--drop", "number", "--positive", "b", "--json")
    found = json.loads(run("race", "rows.csv", *chosen).stdout)
    share = 13 / 40
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert found["best_constant"] == pytest.approx(entropy)
    found = json.loads(run("race", "rows.csv", "--target", "number", "--json").stdout)
    assert found["loss"] == "absolute loss"
    assert found["best_constant"] == pytest.approx(np.mean(np.abs(np.arange(40) - 19.5)) * 0.37)


def test_slopes_of_the_races_losses_are_their_derivatives():
    for loss, target in (
        (linear.log_loss, 1.0),
        (linear.log_loss, 0.0),
        (linear.absolute_loss, 0.4),
    ):
        for score in (-2.0, 0.3, 5.0):
            value, slope = loss(jnp.float32(score), jnp.float32(target))
            above, _ = loss(jnp.float32(score + 1e-2), jnp.float32(target))
            below, _ = loss(jnp.float32(score - 1e-2), jnp.float32(target))
            assert (above - below) / 2e-2 == pytest.approx(float(slope), abs=1e-3)
            assert value >= 0


@pytest.mark.slow
def test_bench_has_a_speed_for_every_optimizer_and_size():
    found = json.loads(run("bench", "--sizes", "2", "--json").stdout)["rounds_per_second"]
    assert set(found) == {*bench.OF_VECTORS, *bench.OF_MATRICES}
    assert all(set(speeds) == {"2"} and min(speeds.values()) > 0 for speeds in found.values())


@pytest.mark.usefixtures("few_contenders")
def test_the_readmes_commands_run(folder, monkeypatch):
    monkeypatch.setattr(bench, "OF_MATRICES", ())
    monkeypatch.setattr(bench, "OF_VECTORS", ("fixed_norm",))
    for seed, name in enumerate(("houses.csv", "new_houses.csv", "more_houses.csv")):
        rng = np.random.default_rng(seed)
        areas, rooms = rng.uniform(30, 300, size=50).round(1), rng.integers(1, 9, size=50)
        cities = rng.choice(["Oslo", "Rome"], size=50)
        prices = areas * np.where(cities == "Oslo", 9, 4) + rooms
        rows = zip(areas, rooms, cities, prices, strict=True)
        lines = "".join(f"{area},{room},{city},{price}\n" for area, room, city, price in rows)
        (folder / name).write_text("area,rooms,city,price\n" + lines)
    section = run_readme.README.read_text().split("## From the command line")[1]
    commands = section.split("```sh\n")[1].split("```")[0].splitlines()
    assert {command.split()[1] for command in commands} == {"fit", "predict", "race", "bench"}
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "varynorm"
        run(*arguments)
    assert (folder / "houses.html").stat().st_size > 10_000
    assert len((folder / "prices.csv").read_text().splitlines()) == 51
    assert model_file.load(folder / "houses.varynorm").estimator.t_ == 100


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file():
    """Both files are longer than what is read ahead; what the peak still varies by is malloc's."""
    small, large = (large_file.measure(rows, 20, "diagonal") for rows in (250_000, 1_000_000))
    assert large["fit"]["rows"] == 1_000_000
    assert large["peak_megabytes"] < 1000
    added = {name: large[name] - small[name] for name in ("peak_megabytes", "file_megabytes")}
    assert added["file_megabytes"] > 140
    assert added["peak_megabytes"] < added["file_megabytes"] / 2
    assert large["fit"]["progressive_loss"] < 0.4 < np.log(2)
