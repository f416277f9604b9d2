"""What the classifier and the regressor share: a linear model that learns from one pass."""

import numbers

import jax.numpy as jnp
import numpy as np
import optax
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from optax_varynorm.counts import counts
from optax_varynorm.estimators import sparse_stream, stream


class OnlineLinearModel(BaseEstimator):
    """One learner for each output; ``coef_`` and ``intercept_`` are where they are."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validate(self, X, y, restart, **checks):
        """Rows as CSR or dense, in the dtype to learn in, and their targets."""
        # The first of the dtypes is what others, such as those of integers, become.
        dtypes = [jnp.result_type(float), np.float32] if restart else [self._played.averages.dtype]
        if dtypes[0] == np.float64 and jnp.result_type(float) != np.float64:
            raise ValueError(
                "This model was fitted in float64. To go on, call "
                "`jax.config.update('jax_enable_x64', True)` first; or `fit` it anew."
            )
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=dtypes, reset=restart, **checks)
        if issparse(X) and not X.has_canonical_format:
            # Entries of one place count as their sum, which may be infinite where they are not.
            X = X.copy()
            X.sum_duplicates()
            assert_all_finite(X, input_name="X")
        return X, y

    def _start(self, loss, loss_parameter, outputs, dtype):
        """Forget everything; read the parameters."""
        _require_learner(self.learner, self.epsilon)
        dtype = np.dtype(dtype)
        self._task = stream.Task(self.learner, loss)
        self._numbers = stream.Numbers(
            epsilon=None if self.epsilon is None else np.asarray(self.epsilon, dtype),
            loss_parameter=np.asarray(loss_parameter, dtype),
        )
        self._constant = float(self.fit_intercept)
        self._averages = self.average
        self._played = stream.start(self._task, self._numbers, outputs, self.n_features_in_, dtype)
        self._loss_sum = self._weight_sum = 0.0
        self.t_ = 0

    def _learn(self, X, targets, sample_weight, shuffle=False):
        """One pass over the rows; returns the scores of each before it was learned from."""
        dtype = np.dtype(self._played.averages.dtype)
        weights = _check_sample_weight(sample_weight, X, dtype=dtype, ensure_non_negative=True)
        order = np.arange(len(targets))
        if shuffle:
            order = check_random_state(self.random_state).permutation(order)
            X, targets = X[order], targets[order]
        # An average moves in all coordinates, whatever the row.
        is_sparse = not self._averages and sparse_stream.suits(
            self._task, self._numbers, self._played, X
        )
        self._played, scores, losses = (sparse_stream if is_sparse else stream).play(
            self._task,
            self._numbers,
            self._played,
            X,
            self._constant,
            targets.astype(dtype),
            weights[order],
        )
        self.t_ += len(targets)
        self._loss_sum += float(np.dot(np.float64(losses), np.float64(weights[order])))
        self._weight_sum += float(np.sum(weights, dtype=np.float64))
        self.progressive_loss_ = self._loss_sum / self._weight_sum if self._weight_sum else np.nan
        self.clipped_rounds_ = int(counts(self._played.learner_states).get("clipped_rounds", 0))
        in_given_order = np.argsort(order)
        self.progressive_losses_ = losses[in_given_order]
        return scores[in_given_order]

    def _points(self):
        """The coefficients and the intercept of each output, in float64."""
        if self._averages:
            chosen = self._played.averages
        else:
            chosen = stream.next_points(self._task, self._numbers, self._played)
        points = np.asarray(chosen, np.float64)
        features = self.n_features_in_
        return points[:, :features], self._constant * points[:, features]

    def _scores(self, X):
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_


def require_choice(name: str, value, choices) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {[*choices]}, not {value!r}.")


def require_number_between(name: str, value, low: float, high: float) -> None:
    if not isinstance(value, numbers.Real) or not low < float(value) < high:
        raise ValueError(f"`{name}` must be a number between {low} and {high}, not {value!r}.")


def _require_learner(learner, epsilon):
    if isinstance(learner, str):
        require_choice("learner", learner, stream.LEARNERS)
    elif not isinstance(learner, optax.GradientTransformation):
        raise ValueError(
            f"`learner` must be one of {[*stream.LEARNERS]} or an Optax optimizer, not {learner!r}."
        )
    elif epsilon is not None:
        raise ValueError(
            "`epsilon` belongs to the learners with a name. Leave it `None`, and set that of an "
            "optimizer where it is made: `learner=vn.full_matrix(epsilon=...)`."
        )
    if epsilon is not None:
        require_number_between("epsilon", epsilon, 1e-12, 1e12)
