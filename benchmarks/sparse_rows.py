"""Rows a second of the estimators on sparse rows like those of text, and on the same made dense.

``python -m benchmarks.sparse_rows`` draws rows of 100 numbers among 50,000 features, prints a table
and writes ``sparse_rows.json`` to ``--out`` (default ``out/bench``). Both programs go on learning
by ``partial_fit`` and take turns; figures are medians.
"""

import argparse
import pathlib

import numpy as np
import scipy.sparse

from benchmarks import results
from benchmarks.timing import interleave
from optax_varynorm.estimators import VaryNormClassifier


def draw(rows, features, numbers, seed=0):
    """As of words: feature ``i`` comes about as often as ``1 / i``."""
    rng = np.random.default_rng(seed)
    drawn = np.floor(features ** rng.random((rows, numbers))).astype(np.int32) - 1
    table = scipy.sparse.csr_matrix(
        (np.ones(drawn.size, np.float32), drawn.ravel(), numbers * np.arange(rows + 1)),
        shape=(rows, features),
    )
    table.sum_duplicates()
    scores = table @ rng.normal(size=features)
    return table, scores > rng.logistic(size=rows)


def learning(table, labels):
    model = VaryNormClassifier(learner="diagonal")
    return lambda: model.partial_fit(table, labels, classes=[False, True]).coef_


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("--numbers", type=int, default=100, help="of a row")
    parser.add_argument("--rows", type=int, default=10_000, help="of a turn, when sparse")
    parser.add_argument("--dense-rows", type=int, default=200, help="of a turn, when dense")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    table, labels = draw(arguments.rows, arguments.features, arguments.numbers)
    few = slice(arguments.dense_rows)
    programs = {
        "sparse": (learning(table, labels), arguments.rows),
        "dense": (learning(table[few].toarray(), labels[few]), arguments.dense_rows),
    }
    timing = interleave(programs, arguments.turns)
    rates = {name: 1 / timing.seconds_a_round(name) for name in programs}
    results.show(["rows", "a second"], [[name, f"{rate:,.0f}"] for name, rate in rates.items()])
    settings = {name: getattr(arguments, name) for name in ("features", "numbers", "rows", "turns")}
    results.write(
        arguments.out / "sparse_rows.json", {"settings": settings, "rows_per_second": rates}
    )


if __name__ == "__main__":
    main()
