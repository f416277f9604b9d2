"""The benchmarks run; their figures are the business of ``make bench`` and its kin."""

import importlib.util
import json
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn import datasets

import optax_varynorm as vn
from benchmarks import after_the_stream, several_classes, weight
from optax_varynorm.estimators import VaryNormClassifier
from tools import run_readme


def run(name, tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--out", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=run_readme.README.parent,
    ).stdout


@pytest.mark.slow
def test_the_smoke_version_prints_a_table_and_draws_a_plot(tmp_path):
    printed = run("speed", tmp_path, "--smoke")
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    assert all(name in printed for name in rows)
    # Between two tiny sizes a busy machine may measure a negative growth.
    (exponent,) = (name for name in rows if name.startswith("growth exponent"))
    assert math.isfinite(rows.pop(exponent))
    assert all(value > 0 for value in rows.values())
    assert (tmp_path / "speed.png").stat().st_size > 10_000


@pytest.mark.slow
def test_optimizers_are_weighed_against_those_of_optax(tmp_path):
    printed = run("weight", tmp_path, "--smoke", "--only", "diagonal")
    names = {"adam", "mechanize(adam)", "diagonal"}
    assert all(name in printed for name in names)
    report = json.loads((tmp_path / "weight.json").read_text())
    first = report["first_step"]
    assert set(first) == set(report["state"]) == names
    assert first["mechanize(adam)"]["ratio of seconds"] == 1
    assert all(0 < record["instructions"] < record["lines"] for record in first.values())
    one, two = (each["diagonal"] for each in report["first_step_by_leaves"].values())
    assert one["instructions"] < two["instructions"]
    for step in report["step"].values():
        assert set(step) == names
        assert step["adam"]["ratio"] == 1
        assert all(record["milliseconds"] > 0 for record in step.values())


def test_the_state_of_adam_weighs_twice_the_parameters():
    records = weight.state_sizes(weight.OPTIMIZERS, weight.tree_of_leaves(4, (64, 64)))
    assert records["adam"]["ratio"] == pytest.approx(2, abs=1e-3)
    assert records["adam"]["leaves of a parameter's shape"] == 8
    assert all(record["ratio"] >= 1 for record in records.values())


@pytest.mark.slow
def test_sweeps_are_compared_with_single_runs(tmp_path):
    """The program itself checks that both have the same losses."""
    printed = run("sweep", tmp_path, "--seeds", "4", "--rounds", "50", "--turns", "1")
    record = json.loads((tmp_path / "sweep.json").read_text())
    ways = {"one by one", "sweep"}
    assert set(record) == {f"{stream}, {way}" for stream in ("shuffled", "drawn") for way in ways}
    assert f"{record['drawn, sweep']['ratio']:.1f} x" in printed


@pytest.mark.slow
def test_networks_train_and_compare_with_cached_peers(tmp_path):
    settings = ("--models", "mlp", "--steps", "40", "--seeds", "2")
    printed = run("networks", tmp_path, *settings, "--only", "fixed_norm,sgd")
    assert "All of these were run now." in printed
    first = json.loads((tmp_path / "networks.json").read_text())["models"]["mlp"]["optimizers"]
    assert set(first) == {"fixed_norm", "sgd"}
    assert max(first["sgd"]["final_loss"]) < 2.0, "ten classes start at log 10 or above"
    assert all(len(record["final_loss"]) == 2 for record in first.values())

    expression = "vn.fixed_norm(epsilon=2.0)"
    printed = run("networks", tmp_path, *settings, "--only", "fixed_norm", "--try", expression)
    assert "sgd*" in printed
    assert "cached" in printed
    again = json.loads((tmp_path / "networks.json").read_text())["models"]["mlp"]["optimizers"]
    assert set(again) == {*first, expression}
    assert again["sgd"] == {**first["sgd"], "cached": True}
    assert again["fixed_norm"]["final_loss"] == first["fixed_norm"]["final_loss"]


@pytest.mark.slow
def test_the_race_plays_what_the_online_loop_plays(tmp_path):
    from benchmarks import streams

    (tmp_path / "tiny.libsvm").write_text("2 1:1 3:5\n1 2:1\n2 1:2 2:0.5\n" * 20)
    chosen = ("--only", "full_matrix,dowg,sgd", "--streams", "tiny,breast_cancer")
    printed = run("race", tmp_path, "--data", str(tmp_path), "--rows", "50", *chosen)
    assert "50 rows (cut by --rows)" in printed
    learners = json.loads((tmp_path / "race.json").read_text())["streams"]["tiny"]["learners"]

    def log_loss(params, example):
        row, label = example
        return optax.sigmoid_binary_cross_entropy(row @ params, label)

    stream = streams.load("tiny", tmp_path, rows=50)
    assert set(np.unique(stream.labels)) == {0, 1}
    assert stream.features.shape == (50, 4)
    stream = jax.tree.map(jnp.asarray, stream)
    rate = learners["sgd"]["learning_rate"]
    for name, optimizer in (("full_matrix", vn.full_matrix()), ("sgd", optax.sgd(rate))):
        game = vn.play(optimizer, log_loss, tuple(stream), jnp.zeros(4))
        assert learners[name]["loss"] == pytest.approx(float(game.losses.mean()), rel=1e-4)


def needs(*packages):
    """For tests against libraries of the ``race`` extra, which the others do without."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"pip install {' '.join(missing)}")


@pytest.mark.slow
@needs("vowpalwabbit", "river")
def test_other_libraries_take_part_in_the_race(tmp_path):
    settings = ("--streams", "phishing,iris", "--rows", "200")
    theirs = ("vw", "vw --coin", "river logistic", "river scaled logistic")
    printed = run("race", tmp_path, *settings, "--only", ",".join(["fixed_norm", *theirs]))
    assert "fixed_norm: below every untuned peer on" in printed
    first = json.loads((tmp_path / "race.json").read_text())["streams"]["phishing"]["learners"]
    assert set(first) == {"fixed_norm", *theirs}
    coin_flips = np.log(2)
    assert all(0 < record["loss"] < coin_flips for record in first.values())
    scored, own = first["vw"]["readings"].values()
    assert scored == pytest.approx(own, rel=1e-5), "our log loss is Vowpal Wabbit's"

    printed = run("race", tmp_path, *settings, "--only", "fixed_norm")
    assert "cached" in printed
    again = json.loads((tmp_path / "race.json").read_text())["streams"]["phishing"]["learners"]
    assert again["vw --coin"] == {**first["vw --coin"], "cached": True}


def test_libraries_that_are_missing_are_named(monkeypatch):
    from optax_varynorm.racing import libraries

    monkeypatch.setattr(libraries, "is_installed", lambda package: False)
    assert libraries.present() == {}
    assert [note.split()[-1] for note in libraries.notes()] == ["vowpalwabbit", "river"]


@pytest.mark.slow
@needs("vowpalwabbit")
def test_throughput_is_compared_with_vowpal_wabbit(tmp_path):
    sparse = "12*diagonal_scale_invariant"  # more than there are in a kernel
    learners = f"diagonal,4*diagonal,{sparse},no_such_learner"
    printed = run("throughput", tmp_path, "--rows", "200", "--turns", "1", "--learners", learners)
    assert "Left out: vn.no_such_learner" in printed
    records = json.loads((tmp_path / "throughput.json").read_text())["learners"]
    assert {"vw --coin", "diagonal", "4*diagonal", f"{sparse}, 1 core"} <= set(records)
    assert all(record["examples_per_second"] > 0 for record in records.values())
    assert records["vw --coin"]["ratio to vw --coin"] == 1


@pytest.mark.slow
def test_sparse_rows_are_timed_against_dense_ones(tmp_path):
    run("sparse_rows", tmp_path, "--features", "1000", "--rows", "50", "--turns", "1")
    rates = json.loads((tmp_path / "sparse_rows.json").read_text())["rows_per_second"]
    assert set(rates) == {"sparse", "dense"}


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


@pytest.mark.slow
def test_the_estimators_defaults_are_the_better_choice_on_wine():
    """Two of the figures that decided them."""
    X, y = datasets.load_wine(return_X_y=True)
    softmax, ovr = (
        several_classes.progressive_log_loss(way, X, y, seed=0) for way in ("softmax", "ovr")
    )
    assert softmax < ovr
    last, average = (
        after_the_stream.held_out_loss(
            VaryNormClassifier(average=average), after_the_stream.log_loss, X, y, seed=0
        )
        for average in (False, True)
    )
    assert last < average


@pytest.mark.slow
def test_blocks_are_timed_against_their_rank_one_updates(tmp_path):
    run("blocks", tmp_path, "--blocks", "3", "--sizes", "8", "--rounds", "5", "--turns", "1")
    (programs,) = json.loads((tmp_path / "blocks.json").read_text())["sizes"].values()
    assert set(programs) == {"rank-one", "norm", "one bettor", "one bettor, tree", "one each"}
    assert all(record["ratio"] > 0 for record in programs.values())


@pytest.mark.slow
def test_projections_are_timed_against_cholesky_factors(tmp_path):
    arguments = ("--sizes", "8", "--streams", "steep", "--seeds", "2", "--turns", "1")
    run("projection_cost", tmp_path, "--domains", "box,l2_ball", *arguments)
    report = json.loads((tmp_path / "projection_cost.json").read_text())
    assert [row["domain"] for row in report["alone"]] == ["box", "l2_ball"]
    assert all(row["ratio"] > 0 and row["error"] <= 1e-3 for row in report["alone"])
    assert all(row["ratio"] > 0 for row in report["batches"])
