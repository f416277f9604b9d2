"""An estimator as settings for JSON and named arrays, and back: it goes on exactly where it was.

Without pickle: the state's structure is made anew from the settings, and filled with the arrays.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optax_varynorm.estimators.classifier import VaryNormClassifier
from optax_varynorm.estimators.regressor import VaryNormRegressor

KINDS: dict[str, type[VaryNormClassifier | VaryNormRegressor]] = {
    "classifier": VaryNormClassifier,
    "regressor": VaryNormRegressor,
}


def to_arrays(model: VaryNormClassifier | VaryNormRegressor) -> tuple[dict, dict[str, np.ndarray]]:
    """The settings, and the state's arrays by where they are in it.

    Args:
      model: fitted; its learner has a name, its classes, if any, are 0, 1, 2 and so on.
    """
    if not isinstance(model.learner, str):
        raise ValueError("Only an estimator whose learner has a name can be saved.")
    is_classifier = isinstance(model, VaryNormClassifier)
    if is_classifier and not np.array_equal(model.classes_, np.arange(len(model.classes_))):
        raise ValueError("The classes must be 0, 1, 2 and so on: encode the labels beforehand.")
    settings = {
        "kind": "classifier" if is_classifier else "regressor",
        "parameters": model.get_params(),
        "classes": len(model.classes_) if is_classifier else None,
        "features": model.n_features_in_,
        "dtype": str(model._played.averages.dtype),
        "rows": model.t_,
        "loss_sum": model._loss_sum,
        "weight_sum": model._weight_sum,
    }
    return settings, {name: np.asarray(leaf) for name, leaf in _named_leaves(model._played)}


def require_fit(settings: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    """That these are the arrays of such an estimator, by shapes and dtypes; none is made."""
    state = jax.eval_shape(lambda: _empty(settings)._played)
    expected = dict(_named_leaves(state))
    wrong = [
        name
        for name in expected.keys() | arrays.keys()
        if name not in expected
        or name not in arrays
        or (arrays[name].shape, arrays[name].dtype) != (expected[name].shape, expected[name].dtype)
    ]
    if wrong:
        raise ValueError(f"The saved state does not fit this version's learner: {sorted(wrong)}.")


def from_arrays(
    settings: dict[str, Any], arrays: dict[str, np.ndarray]
) -> VaryNormClassifier | VaryNormRegressor:
    """The inverse of ``to_arrays``."""
    require_fit(settings, arrays)
    model = _empty(settings)
    names = [name for name, _ in _named_leaves(model._played)]
    structure = jax.tree.structure(model._played)
    model._played = jax.tree.unflatten(structure, [jnp.asarray(arrays[n]) for n in names])
    model.t_ = settings["rows"]
    model._loss_sum, model._weight_sum = settings["loss_sum"], settings["weight_sum"]
    model.progressive_loss_ = model._loss_sum / model._weight_sum
    model._set_coefficients()
    return model


def _empty(settings) -> VaryNormClassifier | VaryNormRegressor:
    """Before the first row."""
    model = KINDS[settings["kind"]](**settings["parameters"])
    model.n_features_in_ = settings["features"]
    if isinstance(model, VaryNormClassifier):
        model._start_classes(np.arange(settings["classes"]), settings["dtype"])
    else:
        model._start_target(settings["dtype"])
    return model


def _named_leaves(tree):
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]
