"""Estimators for scikit-learn: its own checks, hard streams, bad input, one compilation."""

import pickle
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
import scipy.sparse
from sklearn import datasets
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import optax_varynorm as vn
from optax_varynorm.estimators import (
    VaryNormClassifier,
    VaryNormRegressor,
    sparse_stream,
    stream,
)

# Algorithm 3 compiles fast; the other learners have the slow group.
FAST = {"learner": "diagonal"}
LEARNERS = ["diagonal", "default", "full_matrix"]
IMPOSSIBLE = {
    f"check_sample_weight_equivalence_on_{kind}_data": "one pass in order: repeating a row, and "
    "shuffling, is not the same as learning from it once with a larger weight"
    for kind in ("dense", "sparse")
}
skips_are_fine = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@skips_are_fine
@parametrize_with_checks(
    [VaryNormClassifier(**FAST), VaryNormRegressor(**FAST)],
    expected_failed_checks=lambda _: IMPOSSIBLE,
)
def test_scikit_learn_approves(estimator, check):
    check(estimator)


@pytest.mark.slow
@skips_are_fine
@parametrize_with_checks(
    [VaryNormClassifier(), VaryNormRegressor()], expected_failed_checks=lambda _: IMPOSSIBLE
)
def test_scikit_learn_approves_of_the_default(estimator, check):
    check(estimator)


def examples(rows=600, classes=2, seed=0):
    """Five features of very different sizes, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 5)) * [1.0, 1e3, 1e-3, 1.0, 10.0]
    scores = (X / [1.0, 1e3, 1e-3, 1.0, 10.0]) @ rng.normal(size=(5, classes))
    return X.astype(np.float32), np.argmax(scores + 0.3 * rng.normal(size=scores.shape), axis=1)


def hard_streams():
    X, y = examples(3000)
    late = X.copy()
    late[:2000, 0] = 0
    by_class = np.append(np.argsort(y[:2400], kind="stable"), np.arange(2400, 3000))
    assert not y[by_class[:1000]].any()
    sizes = np.float32([1e-30, 1.0, 1e30, 1e-30, 1e30])
    zeros = X.copy()
    zeros[::3] = 0
    return {
        "a feature that is first seen late": (late, y),
        "a constant column": (np.hstack([X[:, :4], np.full((len(X), 1), 7, np.float32)]), y),
        "duplicated columns": (X[:, [0, 0, 1, 1, 1]], y),
        "rows of zeros": (zeros, y),
        "a single class for a thousand rows": (X[by_class], y[by_class]),
        "nearly the largest and smallest sizes": (X / np.abs(X).max(axis=0) * sizes, y),
    }


HARD_STREAMS = hard_streams()


def entropy(y):
    """The log loss of the best constant prediction."""
    shares = np.bincount(y) / len(y)
    return -np.sum(shares * np.log(shares))


@pytest.mark.parametrize(
    "learner",
    [
        learner if learner == "diagonal" else pytest.param(learner, marks=pytest.mark.slow)
        for learner in LEARNERS
    ],
)
@pytest.mark.parametrize("name", HARD_STREAMS)
class TestHardStreams:
    def test_classifier(self, learner, name):
        X, y = HARD_STREAMS[name]
        model = VaryNormClassifier(learner=learner).fit(X, y)
        assert np.isfinite(model.progressive_predictions_).all()
        assert np.isfinite(model.predict_proba(X)).all()
        assert model.progressive_loss_ < 3 * entropy(y)

    def test_regressor(self, learner, name):
        X, y = HARD_STREAMS[name]
        targets = 5.0 + 20 * y
        model = VaryNormRegressor(learner=learner).fit(X, targets)
        assert np.isfinite(model.progressive_predictions_).all()
        assert np.isfinite(model.predict(X)).all()
        assert model.progressive_loss_ < 3 * np.mean(np.abs(targets - np.median(targets)))
        assert model.clipped_rounds_ == 0


@pytest.mark.parametrize("multi_class", ["softmax", pytest.param("ovr", marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", ["logistic", pytest.param("hinge", marks=pytest.mark.slow)])
def test_several_classes_are_learned(loss, multi_class):
    X, y = examples(1500, classes=3)
    model = VaryNormClassifier(loss=loss, multi_class=multi_class, **FAST).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.coef_.shape == (3, 5)
    assert model.progressive_predictions_.shape == (1500, 3)
    if loss == "logistic":
        probabilities = model.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        np.testing.assert_array_equal(model.classes_[probabilities.argmax(1)], model.predict(X))


def test_hinge_loss_has_no_probabilities():
    assert not hasattr(VaryNormClassifier(loss="hinge"), "predict_proba")
    with pytest.raises(AttributeError) as error:
        _ = VaryNormClassifier(loss="hinge").predict_proba
    assert "needs loss='logistic'" in str(error.value.__cause__)


REGRESSIONS = {
    "absolute": {},
    "quantile": {"quantile": 0.9},
    "huber": {"delta": 5.0},
    "squared": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", REGRESSIONS)
def test_regression_beats_the_best_constant(loss):
    X, _ = examples(3000)
    noise = np.random.default_rng(1).normal(size=len(X))
    y = X @ [20.0, 0.02, 2e4, 0.0, 1.0] + 50 + noise
    model = VaryNormRegressor(loss=loss, **REGRESSIONS[loss], **FAST).fit(X, y)
    assert model.score(X, y) > 0.9
    if loss == "quantile":
        assert 0.8 < np.mean(y < model.predict(X)) < 0.97
    assert (model.clipped_rounds_ > 0) == (loss == "squared")


def fitted_parts(model):
    return np.append(model.coef_, model.intercept_)


@pytest.mark.parametrize("average", [False, True])
def test_pieces_equal_the_whole(average):
    X, y = examples(1500)
    whole = VaryNormClassifier(average=average, **FAST).fit(X, y)
    pieces = clone(whole)
    for piece in (slice(0, 1), slice(1, 1100), slice(1100, None)):
        pieces.partial_fit(X[piece], y[piece], classes=[0, 1])
    np.testing.assert_array_equal(fitted_parts(pieces), fitted_parts(whole))
    assert pieces.progressive_loss_ == pytest.approx(whole.progressive_loss_)
    np.testing.assert_array_equal(
        pieces.progressive_predictions_, whole.progressive_predictions_[1100:]
    )
    assert pieces.t_ == whole.t_ == 1500


def test_sparse_rows_equal_dense_ones():
    X, y = examples()
    X[np.random.default_rng(0).random(X.shape) < 0.7] = 0
    dense = VaryNormClassifier(**FAST).fit(X, y)
    sparse = VaryNormClassifier(**FAST).fit(scipy.sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(fitted_parts(sparse), fitted_parts(dense))
    np.testing.assert_allclose(
        sparse.decision_function(scipy.sparse.csr_array(X)), dense.decision_function(X)
    )


def short_rows(rows=300, features=100, classes=2, seed=0):
    """Up to six of a hundred features, of different sizes, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = np.zeros((rows, features), np.float32)
    for row in X:
        chosen = rng.choice(features, rng.integers(0, 7), replace=False)
        row[chosen] = rng.normal(size=len(chosen)) * 10.0 ** (chosen % 4)
    scores = (X / 10.0 ** (np.arange(features) % 4)) @ rng.normal(size=(features, classes))
    return X, np.argmax(scores + 0.3 * rng.normal(size=scores.shape), axis=1)


def assert_same_fit(actual, expected):
    """To rounding: coordinates that wait for their feature skip steps that change nothing else."""
    for name in ("progressive_predictions_", "coef_", "intercept_"):
        a, b = getattr(actual, name), getattr(expected, name)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max(), err_msg=name)
    assert actual.progressive_loss_ == pytest.approx(expected.progressive_loss_, rel=1e-5)
    # Where rows are dense, the last one is counted when the next one comes.
    assert actual.clipped_rounds_ - expected.clipped_rounds_ in (0, 1)


@pytest.fixture
def only_sparse(monkeypatch):
    """Nothing may be made dense but the row of zeros that shows the coefficients."""

    def play(*_):
        raise AssertionError("made dense")

    monkeypatch.setattr(stream, "play", play)


class TestShortRows:
    """Sparse rows with many more features than numbers that are not zero."""

    @pytest.mark.parametrize("classes", [2, 3])
    def test_equal_dense_ones(self, classes, monkeypatch):
        X, y = short_rows(classes=classes)
        weights = np.random.default_rng(1).integers(0, 3, len(y))
        dense = VaryNormClassifier(**FAST).fit(X, y, weights)
        monkeypatch.setattr(stream, "play", None)
        sparse = VaryNormClassifier(**FAST).fit(scipy.sparse.csr_matrix(X), y, weights)
        assert_same_fit(sparse, dense)

    @pytest.mark.slow
    def test_the_default_is_sparse_when_there_are_many_features(self, monkeypatch):
        X, y = short_rows(features=600)
        dense = VaryNormClassifier().fit(X, y)
        monkeypatch.setattr(stream, "play", None)
        assert_same_fit(VaryNormClassifier().fit(scipy.sparse.csr_matrix(X), y), dense)

    def test_are_dense_for_a_learner_that_zeros_move(self):
        X, y = short_rows()
        learner = vn.per_coordinate(optax.sgd(0.1, momentum=0.9))
        dense, sparse = (
            VaryNormClassifier(learner=learner).fit(rows, y)
            for rows in (X, scipy.sparse.csr_matrix(X))
        )
        assert_same_fit(sparse, dense)

    @pytest.mark.slow
    def test_a_regressor_clips_alike(self):
        X, y = short_rows()
        targets = 100.0 * y
        dense = VaryNormRegressor(loss="squared", **FAST).fit(X, targets)
        sparse = VaryNormRegressor(loss="squared", **FAST).fit(scipy.sparse.csr_matrix(X), targets)
        assert dense.clipped_rounds_ > 0
        assert_same_fit(sparse, dense)

    @pytest.mark.usefixtures("only_sparse")
    def test_entries_that_come_twice_are_added_up(self):
        X, y = short_rows()
        once = scipy.sparse.csr_matrix(X)
        twice = scipy.sparse.csr_matrix(
            (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr), X.shape
        )
        models = [VaryNormClassifier(**FAST).fit(rows, y) for rows in (once, twice)]
        np.testing.assert_array_equal(fitted_parts(models[0]), fitted_parts(models[1]))
        assert twice.nnz == 2 * once.nnz, "the caller's rows are as they were"

    def test_long_rows_and_dense_ones_take_turns_with_them(self):
        X, y = short_rows(2600)
        X[1500] = 1.0
        dense = VaryNormClassifier(**FAST).fit(X, y)
        sparse = VaryNormClassifier(**FAST).fit(scipy.sparse.csr_matrix(X[:2200]), y[:2200])
        sparse.partial_fit(X[2200:2400], y[2200:2400])
        sparse.partial_fit(scipy.sparse.csr_matrix(X[2400:]), y[2400:])
        dense.progressive_predictions_ = dense.progressive_predictions_[2400:]
        assert_same_fit(sparse, dense)

    def test_averages_are_those_of_all_points(self):
        X, y = short_rows()
        settings = {"average": True, **FAST}
        dense = VaryNormClassifier(**settings).fit(X, y)
        sparse = VaryNormClassifier(**settings).fit(scipy.sparse.csr_matrix(X), y)
        np.testing.assert_array_equal(fitted_parts(sparse), fitted_parts(dense))

    def test_lengths_that_are_close_share_what_is_compiled(self):
        X, y = short_rows()
        VaryNormClassifier(**FAST).fit(scipy.sparse.csr_matrix(X), y)
        compiled = sparse_stream._play_chunk._cache_size()
        rows = scipy.sparse.csr_matrix(X[(X != 0).sum(axis=1) < 5])
        labels = y[(X != 0).sum(axis=1) < 5]
        VaryNormClassifier(fit_intercept=False, **FAST).fit(rows, labels)
        assert sparse_stream._play_chunk._cache_size() == compiled


def test_progressive_predictions_do_not_know_their_label():
    X, y = examples()
    model = VaryNormClassifier(**FAST).fit(X, y)
    y[-1] = 1 - y[-1]
    other = VaryNormClassifier(**FAST).fit(X, y)
    np.testing.assert_array_equal(other.progressive_predictions_, model.progressive_predictions_)
    assert model.progressive_predictions_[0] == 0
    losses = np.logaddexp(0, np.where(y == 1, -1, 1) * model.progressive_predictions_)
    assert other.progressive_loss_ == pytest.approx(losses.mean(), rel=1e-5)


def test_predictions_ignore_units():
    X, y = examples()
    units = np.float32([1e6, 1e-6, 1e3, 1.0, 1e-9])
    model, other = (VaryNormClassifier(**FAST).fit(rows, y) for rows in (X, X * units))
    np.testing.assert_allclose(
        other.progressive_predictions_, model.progressive_predictions_, atol=1e-3
    )


def test_shuffled_rows_keep_their_places():
    X, y = examples()
    model = VaryNormClassifier(shuffle=True, random_state=0, **FAST).fit(X, y)
    order = np.random.RandomState(0).permutation(len(y))
    expected = VaryNormClassifier(**FAST).fit(X[order], y[order])
    np.testing.assert_array_equal(
        model.progressive_predictions_[order], expected.progressive_predictions_
    )


def test_rows_of_weight_zero_teach_nothing():
    X, y = examples()
    weights = np.ones(len(y))
    weights[::2] = 0
    model = VaryNormClassifier(**FAST).fit(X, y, weights)
    expected = VaryNormClassifier(**FAST).fit(X[1::2], y[1::2])
    np.testing.assert_allclose(fitted_parts(model), fitted_parts(expected), rtol=1e-2)
    assert model.progressive_loss_ == pytest.approx(expected.progressive_loss_, rel=1e-4)


def test_other_lengths_widths_and_settings_share_what_is_compiled():
    X, y = examples()
    VaryNormClassifier(epsilon=1.0, **FAST).fit(X, y)
    compiled = stream._play_chunk._cache_size()
    VaryNormClassifier(epsilon=3.0, fit_intercept=False, **FAST).fit(X[:77, :4], y[:77])
    VaryNormClassifier(epsilon=1.0, average=True, **FAST).fit(np.repeat(X, 3, axis=0), y.repeat(3))
    assert stream._play_chunk._cache_size() == compiled


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_float64_rows_are_learned_in_float64():
    X, y = examples()
    model = VaryNormClassifier(**FAST).fit(X.astype(np.float64), y)
    assert model.progressive_predictions_.dtype == np.float64
    assert VaryNormClassifier(**FAST).fit(X, y).progressive_predictions_.dtype == np.float32


def test_a_copy_goes_on_where_the_original_was():
    X, y = examples()
    model = VaryNormClassifier(**FAST).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    for each in (model, copy):
        each.partial_fit(X, y)
    np.testing.assert_array_equal(fitted_parts(copy), fitted_parts(model))


def test_any_optax_optimizer_can_be_the_learner():
    X, y = examples()
    X /= np.abs(X).max(axis=0)
    for learner in (optax.adagrad(1.0), vn.diagonal_scale_invariant()):
        model = clone(VaryNormClassifier(learner=learner)).fit(X, y)
        assert model.progressive_loss_ < 0.8 * entropy(y)
    named = VaryNormClassifier(**FAST).fit(X, y)
    np.testing.assert_array_equal(fitted_parts(model), fitted_parts(named))


def test_pipelines_and_searches_work():
    X, y = examples()
    pipeline = make_pipeline(StandardScaler(), VaryNormClassifier(**FAST))
    name = "varynormclassifier__"
    search = GridSearchCV(
        pipeline, {name + "epsilon": [0.1, 1.0], name + "average": [False, True]}, cv=2
    )
    assert search.fit(X, y).score(X, y) > 0.9


BAD_CLASSIFIERS = {
    "`loss` must be one of": {"loss": "squared"},
    "`learner` must be one of .* or an Optax optimizer": {"learner": 3},
    "`learner` must be one of": {"learner": "best"},
    "`epsilon` must be a number between": {"epsilon": 0.0},
    "`epsilon` belongs to": {"epsilon": 1.0, "learner": optax.sgd(0.1)},
    "`multi_class` must be": {"multi_class": "multinomial"},
}


@pytest.mark.parametrize(("message", "settings"), BAD_CLASSIFIERS.items())
def test_bad_settings_say_what_to_do(message, settings):
    with pytest.raises(ValueError, match=message):
        VaryNormClassifier(**settings).fit(*examples())


@pytest.mark.parametrize("settings", [{"loss": "log"}, {"quantile": 1.0}, {"delta": 0.0}])
def test_bad_settings_of_the_regressor_say_what_to_do(settings):
    with pytest.raises(ValueError, match="must be"):
        VaryNormRegressor(**settings).fit(*examples())


def test_bad_rows_and_labels_are_errors():
    X, y = examples()
    model = VaryNormClassifier(**FAST)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"greater than one.*classes="):
        model.fit(X, np.zeros(len(y)))
    model.fit(X, y)
    for bad in (np.nan, np.inf):
        rows = X.copy()
        rows[3, 2] = bad
        for method in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                method(rows, y)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.predict(rows)
    with pytest.raises(ValueError, match="5 features"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(X[:, :3], y)
    with pytest.raises(ValueError, match=r"labels \[2 3\]"):
        model.partial_fit(X[:2], [2, 3])
    with pytest.raises(ValueError, match="not the same"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        model.fit(X, y, -np.ones(len(y)))


def test_a_first_call_that_fails_leaves_no_model():
    X, y = examples()
    model = VaryNormClassifier(**FAST)
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X, y + 1, classes=[0, 1])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X, y)
    np.testing.assert_array_equal(
        fitted_parts(model), fitted_parts(VaryNormClassifier(**FAST).fit(X, y))
    )


def test_targets_beyond_the_dtype_are_an_error():
    X, _ = examples()
    with pytest.raises(ValueError, match="y contains infinity"):
        VaryNormRegressor(**FAST).fit(X, np.full(len(X), 1e300))


def test_the_package_does_not_need_scikit_learn():
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import optax_varynorm\n"
        "try:\n    import optax_varynorm.estimators\n"
        "except ImportError as error:\n    print(error)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "pip install optax-varynorm[sklearn]" in printed


@pytest.mark.slow
def test_real_data_in_raw_units():
    X, y = datasets.load_breast_cancer(return_X_y=True)
    model = VaryNormClassifier(shuffle=True, random_state=0).fit(X, y)
    assert model.progressive_loss_ < 0.25
    assert jax.tree.all(jax.tree.map(lambda leaf: np.isfinite(leaf).all(), model._played))


def test_a_float64_model_says_what_it_needs_to_go_on():
    rows, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    with jax.enable_x64(True):
        model = VaryNormClassifier(learner="diagonal").fit(rows, labels)
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        model.partial_fit(rows, labels)


@pytest.mark.parametrize("learner", ["diagonal", "default"])
def test_entries_of_one_place_that_add_up_to_infinity_are_refused(learner):
    twice = scipy.sparse.csr_matrix(
        (np.array([3e38, 3e38, 1.0], np.float32), np.array([3, 3, 4]), np.array([0, 2, 3])),
        shape=(2, 64),
    )
    with pytest.raises(ValueError, match="infinity"):
        VaryNormClassifier(learner=learner).fit(twice, [0, 1])
    assert twice.nnz == 3  # the caller's matrix is as it was


def test_after_the_stream_the_weights_are_those_that_were_played():
    """A budget that is spent by then is spent for rows to come, too."""
    rows, targets = datasets.make_friedman1(3000, noise=1.0, random_state=0)
    model = VaryNormRegressor(loss="squared").fit(rows[:2500], targets[:2500])
    held_out = np.mean(np.abs(model.predict(rows[2500:]) - targets[2500:]))
    played = np.abs(model.progressive_predictions_ - targets[:2500])[-500:]
    assert held_out < 1.2 * np.mean(played)
