"""Several classes: one softmax of all scores, or each class against the rest.

``python -m benchmarks.several_classes`` prints the progressive log loss of the probabilities, one
pass over shuffled rows in raw units, mean of ten orders.
"""

import numpy as np
from scipy.special import log_expit, log_softmax
from sklearn import datasets

from optax_varynorm.estimators import VaryNormClassifier

STREAMS = {
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
}
ORDERS = 10


def progressive_log_loss(multi_class, X, y, seed):
    """Of the normalized probabilities, whatever loss was learned from."""
    model = VaryNormClassifier(multi_class=multi_class, shuffle=True, random_state=seed).fit(X, y)
    scores = model.progressive_predictions_.astype(np.float64)
    if multi_class == "ovr":
        scores = log_expit(scores)
    return -np.mean(log_softmax(scores, axis=1)[np.arange(len(y)), y])


def main():
    print(f"{'':10}{'softmax':>10}{'ovr':>10}")
    for name, load in STREAMS.items():
        X, y = load(return_X_y=True)
        means = [
            np.mean([progressive_log_loss(way, X, y, seed) for seed in range(ORDERS)])
            for way in ("softmax", "ovr")
        ]
        print(f"{name:10}" + "".join(f"{mean:10.4f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
