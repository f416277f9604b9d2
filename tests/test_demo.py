"""The demo: its arithmetic here, all of it among the slow tests."""

import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import optax_varynorm as vn
from optax_varynorm.demo import experts, race, rescaling, story, streams
from tests.looking_at_pages import DESK, Page, look


def result(losses, rates):
    history = vn.History(np.asarray(losses), None, None, None, None, np.array([2]))
    return race.Result("learner", rates, vn.Game(None, None, history, 1.0, 1.0), 1.0)


def test_a_result_knows_its_best_rate_and_what_missing_it_costs():
    """Three rates, two orders, two rounds."""
    rates = np.array([0.1, 1.0, 10.0], np.float32)
    losses = [[[1, 1], [1, 2]], [[0, 0], [0, 2]], [[9, 9], [9, np.nan]]]
    tuned = result(losses, rates)
    np.testing.assert_array_equal(tuned.mean_losses, [1.25, 0.5, np.inf])
    assert (tuned.best, tuned.loss) == (1, 0.5)
    np.testing.assert_array_equal(tuned.best_losses, losses[1])
    assert tuned.loss_off_by(10.0) == np.inf
    assert result(losses[:2], rates[:2]).loss_off_by(10.0) == 1.25
    without = result([[1, 1], [1, 2]], None)
    assert without.loss == without.loss_off_by(10.0) == 1.25


def test_streams_are_raw_and_zeros_follow_the_constant():
    for stream in (streams.breast_cancer(), streams.digits(), streams.diabetes()):
        assert stream.rows.shape == (len(stream.labels), streams.COLUMNS)
        assert np.all(stream.rows[:, stream.columns] == 1)
        assert not np.any(stream.rows[:, stream.columns + 1 :])
        assert set(np.unique(stream.labels)) == {0, 1}
    stream = streams.breast_cancer()
    assert stream.rows.max() > 4000, "in square millimetres"
    rescaled = streams.with_rescaled_column(stream, 3, 1e3)
    np.testing.assert_allclose(rescaled.rows[:, 3], 1e3 * stream.rows[:, 3], rtol=1e-6)
    np.testing.assert_array_equal(rescaled.rows[:, 4:], stream.rows[:, 4:])


def test_standardized_rows_are_measured_from_the_mean_so_far_in_any_units():
    stream = streams.diabetes()
    key = jax.random.key(3)
    rows, labels = streams.shuffled_and_standardized(stream)(key)
    order = np.asarray(jax.random.permutation(key, len(stream.labels)))
    np.testing.assert_array_equal(labels, stream.labels[order])
    raw = stream.rows[order].astype(np.float64)
    for round_ in (0, 1, 7, 400):
        so_far = raw[: round_ + 1, : stream.columns]
        scale = so_far.std(axis=0)
        expected = (so_far[-1] - so_far.mean(axis=0)) / np.where(scale > 0, scale, 1)
        np.testing.assert_allclose(rows[round_, : stream.columns], expected, atol=2e-3)
    np.testing.assert_array_equal(rows[:, stream.columns :], stream.rows[:, stream.columns :])
    other_units = streams.with_rescaled_column(stream, 0, 1e6)
    again, _ = streams.shuffled_and_standardized(other_units)(key)
    np.testing.assert_allclose(again, rows, atol=1e-3)


def test_the_orders_are_those_of_a_sweep():
    """So that standardized and raw rows are played in the same ones."""
    stream = streams.diabetes()

    def play(examples):
        """Losses that are the labels."""
        return vn.sweep(
            lambda: optax.sgd(0.0), lambda w, row: w * row[1], examples, jnp.ones(()), seeds=2
        ).losses

    shuffled = play((stream.rows, stream.labels))
    assert np.any(shuffled[0] != shuffled[1])
    np.testing.assert_array_equal(play(streams.shuffled_and_standardized(stream)), shuffled)


def test_each_claim_names_its_peers():
    """Peers fail without standardized features, and win with them and the best rate."""
    rates = np.array([0.1, 1.0, 10.0], np.float32)
    ours = result(np.full((2, 2), 0.5), None)._replace(units=race.RAW)
    tuned = result(np.array([[0.7, 0.7], [0.2, 0.2], [np.nan, 1]]), rates)
    raw = result(np.array([[0.7, 0.7], [0.6, 0.6], [9, 9]]), rates)
    peers = [tuned._replace(units=race.STANDARDIZED), raw._replace(units=race.RAW)]
    races = story.Races({"stream": [ours, *peers]}, [], None)
    units, tuning = story.claims(races)
    assert "raw units" in units
    assert "on 1 of 1 streams" in units
    assert "standardized features" in tuning
    assert "on 0 of 1; with a rate ten times off, on 1 of 1" in tuning
    rows = story.table(races)
    assert [row[4] for row in rows] == ["0.500", story.FAILED, "9.000"]
    assert [row[2] for row in rows] == [race.RAW, race.STANDARDIZED, race.RAW]


def test_the_comparator_is_good_in_raw_units():
    stream = streams.breast_cancer()
    scores = stream.rows.astype(np.float64) @ streams.best_in_hindsight(stream)
    losses = np.logaddexp(0, scores) - stream.labels * scores
    assert np.mean(losses) < 0.08


def test_the_mixtures_gradient_has_no_mean_on_the_simplex():
    probabilities, weights = jnp.array([0.9, 0.2, 0.0]), jnp.array([0.5, 0.3, 0.2])
    value, gradient = jax.value_and_grad(experts.mixture_loss)(weights, probabilities)
    assert value == pytest.approx(-np.log(0.51), rel=1e-5)
    plain = -np.asarray(probabilities) / 0.51
    np.testing.assert_allclose(gradient, plain - plain.mean(), rtol=1e-5)


def test_exponentiated_gradient_multiplies_the_weights():
    optimizer = experts.exponentiated_gradient(0.5)
    weights, gradient = jnp.array([0.5, 0.3, 0.2]), jnp.array([1.0, -1.0, 2.0])
    state = optimizer.init(weights)
    for _ in range(3):
        expected = np.asarray(weights) * np.exp(-0.5 * np.asarray(gradient))
        updates, state = optimizer.update(gradient, state, weights)
        weights = weights + updates
        np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-5)


def varynorm(*arguments):
    pytest.importorskip("typer")
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-m", "optax_varynorm.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_demo_prints_a_table_and_writes_a_page(tmp_path):
    path = tmp_path / "out" / "report.html"
    printed = varynorm("demo", "--report", path)
    names = ("breast_cancer", "digits", "diabetes", "experts")
    cells = [re.split(" {2,}", line) for line in printed.splitlines() if line.startswith(names)]
    losses = {
        (stream, learner, units): (float(loss), off)
        for stream, learner, units, loss, off, *_ in cells
    }
    assert len(losses) == 3 * 7 + 2
    for stream in names[:3]:
        ours, _ = losses.pop((stream, race.OURS, race.RAW))
        assert ours < min(losses[stream, peer, race.RAW][0] for peer in race.PEERS)
        for peer in race.PEERS:
            standardized, off = losses[stream, peer, race.STANDARDIZED]
            assert standardized < losses[stream, peer, race.RAW][0], "as people use them"
            assert ours < float(off)
    assert losses["experts", experts.PEER, "-"][1] == story.FAILED
    assert "the lowest mean loss on 3 of 3 streams" in printed
    assert "failed: infinite there" in printed
    assert "seconds. Plots: " in printed

    parsed = Page(path.read_text())
    assert parsed.addresses == []
    assert parsed.tags["svg"] == 3 * 4 + 1 + 2
    seen = look(path, DESK, "dark")
    assert (seen.requests, seen.messages) == ([path.as_uri()], [])
    assert all(height > 200 and shapes > 50 for _, height, shapes in seen.drawings)


@pytest.mark.slow
def test_rescaling_a_column_changes_nothing_for_us():
    stream = streams.breast_cancer()
    before = race.play_ours(stream).loss
    other_units = streams.with_rescaled_column(stream, rescaling.COLUMN, 1e6)
    assert race.play_ours(other_units).loss == pytest.approx(before, rel=1e-3)


@pytest.mark.slow
def test_regrets_of_the_papers_sequences_stay_below_their_bounds(tmp_path):
    plot = tmp_path / "regret.png"
    found = json.loads(varynorm("regret", "--json", "--plot", plot))
    assert set(found) == {"sec:adagrad", "low rank", "drift"}
    for learners in found.values():
        assert set(learners) == {"fixed_norm", "full_matrix", "full_matrix_adagrad", "varynorm"}
        assert all(entry["regret"] <= entry["bound"] < np.inf for entry in learners.values())
    example = {name: entry["regret"] for name, entry in found["sec:adagrad"].items()}
    assert example["full_matrix_adagrad"] < min(example["fixed_norm"], example["full_matrix"])
    assert plot.stat().st_size > 10_000
