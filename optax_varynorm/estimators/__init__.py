"""Linear models for scikit-learn that need no learning rate and no scaling of features."""

try:
    from sklearn.utils.validation import validate_data  # noqa: F401
except ImportError as error:
    raise ImportError(
        "The estimators need scikit-learn 1.6 or later: `pip install optax-varynorm[sklearn]`."
    ) from error

from optax_varynorm.estimators.classifier import VaryNormClassifier
from optax_varynorm.estimators.regressor import VaryNormRegressor

__all__ = ["VaryNormClassifier", "VaryNormRegressor"]
