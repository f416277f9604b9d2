"""A linear regressor for scikit-learn."""

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite

from optax_varynorm.estimators import losses
from optax_varynorm.estimators.linear_model import (
    OnlineLinearModel,
    require_choice,
    require_number_between,
)

LOSSES = {
    "absolute": losses.absolute,
    "quantile": losses.quantile,
    "huber": losses.huber,
    "squared": losses.squared,
}


class VaryNormRegressor(RegressorMixin, OnlineLinearModel):
    """Linear regression in one pass, without a learning rate and in any units of the features.

    Every row is predicted, then learned from, in the order given.

    Args:
      loss: ``"absolute"``, ``"quantile"``, ``"huber"`` (divided by ``delta``), or ``"squared"``
        (half the square of the residual). The first three have slopes of at most one, for which the
        learners' guarantee is made. The squared loss has not: a gradient of dual norm above one
        reaches the learner at dual norm one and its norm as it is, so that the same one fits the
        next time, and is counted in ``clipped_rounds_``.
      quantile: the level of the quantile loss, between 0 and 1.
      delta: where the Huber loss stops being quadratic, in units of the targets.
      learner: ``"default"``, ``"diagonal"`` (O(d) a row), ``"full_matrix"`` (O(d^2) a row), or any
        Optax optimizer, which is given ``features`` and ``next_features`` if it takes them.
      epsilon: the largest regret of the learner against predicting zero, in units of loss; ``None``
        for the learner's default.
      fit_intercept: add a constant feature of one.
      average: whether the coefficients are the average of all points played, which has a
        guarantee, or the last one.
      shuffle: whether ``fit`` goes through the rows in random order; ``partial_fit`` never does.
      random_state: of the shuffle.

    Attributes:
      coef_, intercept_: one coefficient a feature, and an array of one number.
      progressive_loss_: mean loss of the predictions made before the target was seen, over all rows
        since the start, by their weight.
      progressive_predictions_: those predictions, for the rows of the last call.
      progressive_losses_: the losses of those.
      t_: number of rows since the start.
      clipped_rounds_: how many gradients were of dual norm above one, and so were cut to it, for
        the learner that met the most.

    Computations are in float32, or in float64 if the rows are and ``jax_enable_x64`` is set.
    Parameters are read when learning starts; changes to them wait for the next ``fit``. Of sparse
    rows ``"diagonal"``, and ``"default"`` beyond 512 features, look only at what is not zero; for
    other learners, and for averages, they are made dense a chunk at a time. Compiled code is shared
    by all estimators of the same learner, loss and number of features. With an Optax optimizer of
    your own as the learner the estimator cannot be pickled; with a name it can.

    >>> from sklearn.datasets import load_diabetes
    >>> from optax_varynorm.estimators import VaryNormRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = VaryNormRegressor().fit(X, y)
    >>> regressor.predict(X).shape
    (442,)
    """

    def __init__(
        self,
        loss="absolute",
        quantile=0.5,
        delta=1.0,
        learner="default",
        epsilon=None,
        fit_intercept=True,
        average=False,
        shuffle=False,
        random_state=None,
    ):
        self.loss = loss
        self.quantile = quantile
        self.delta = delta
        self.learner = learner
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.average = average
        self.shuffle = shuffle
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        """Forget everything and learn from these rows."""
        return self._fit(X, y, sample_weight, restart=True, shuffle=self.shuffle)

    def partial_fit(self, X, y, sample_weight=None):
        """Go on learning from these rows."""
        return self._fit(X, y, sample_weight, restart=not hasattr(self, "_played"))

    def predict(self, X):
        """The prediction for each row."""
        return self._scores(X)

    def _fit(self, X, y, sample_weight, restart, shuffle=False):
        X, y = self._validate(X, y, restart, y_numeric=True)
        if restart:
            self._start_target(X.dtype)
        with np.errstate(over="ignore"):  # the next line has an error for it
            targets = y.astype(X.dtype)
        assert_all_finite(targets, input_name="y")
        scores = self._learn(X, targets, sample_weight, shuffle)
        self.progressive_predictions_ = scores[:, 0]
        self._set_coefficients()
        return self

    def _start_target(self, dtype):
        require_choice("loss", self.loss, LOSSES)
        require_number_between("quantile", self.quantile, 0, 1)
        require_number_between("delta", self.delta, 0, float("inf"))
        parameter = self.quantile if self.loss == "quantile" else self.delta
        self._start(LOSSES[self.loss], parameter, 1, dtype)

    def _set_coefficients(self):
        coefficients, self.intercept_ = self._points()
        self.coef_ = coefficients[0]
