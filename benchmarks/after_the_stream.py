"""Which coefficients predict best after one pass: the last ones, or the average of all.

``python -m benchmarks.after_the_stream`` learns from a random half of each data set in raw units
and prints the mean loss on the other half, over ten halves.
"""

import numpy as np
from sklearn import datasets, metrics, model_selection

from optax_varynorm.estimators import VaryNormClassifier, VaryNormRegressor

CLASSES = {
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
}
HALVES = 10


def log_loss(model, X, y):
    return metrics.log_loss(y, model.predict_proba(X), labels=model.classes_)


def hinge_loss(model, X, y):
    return metrics.hinge_loss(y, model.decision_function(X), labels=model.classes_)


def absolute_error(model, X, y):
    return metrics.mean_absolute_error(y, model.predict(X))


def friedman(return_X_y):
    assert return_X_y
    return datasets.make_friedman1(2000, random_state=0)


TASKS = [
    *((name, load, VaryNormClassifier(), log_loss) for name, load in CLASSES.items()),
    *((name, load, VaryNormClassifier(loss="hinge"), hinge_loss) for name, load in CLASSES.items()),
    ("diabetes", datasets.load_diabetes, VaryNormRegressor(), absolute_error),
    ("friedman", friedman, VaryNormRegressor(), absolute_error),
    ("diabetes", datasets.load_diabetes, VaryNormRegressor(loss="squared"), absolute_error),
    ("friedman", friedman, VaryNormRegressor(loss="squared"), absolute_error),
]


def held_out_loss(model, measure, X, y, seed):
    """The loss on one half of what was learned from the other."""
    rows = model_selection.train_test_split(X, y, test_size=0.5, random_state=seed)
    learn_from, test_on, learn_labels, test_labels = rows
    return measure(model.fit(learn_from, learn_labels), test_on, test_labels)


def main():
    print(f"{'':16}{'loss':12}{'last':>10}{'average':>10}  halves where the average is better")
    for name, load, model, measure in TASKS:
        X, y = load(return_X_y=True)
        last, average = np.array(
            [
                [
                    held_out_loss(model.set_params(average=average), measure, X, y, seed)
                    for seed in range(HALVES)
                ]
                for average in (False, True)
            ]
        )
        print(
            f"{name:16}{model.loss:12}{last.mean():10.4f}{average.mean():10.4f}"
            f"  {np.sum(average < last)} of {HALVES}",
            flush=True,
        )


if __name__ == "__main__":
    main()
