"""Online portfolio selection on the simplex, against the peers it is usually compared with.

``python -m benchmarks.portfolio`` plays the daily prices of 36 stocks of the New York Stock
Exchange over 22 years (1962 to 1984, Cover's data), prints a table and writes ``portfolio.json`` to
``--out`` (default ``out/bench``). The prices ship with a package of which nothing else is needed:
``pip install --no-deps universal-portfolios``. ``--market synthetic`` needs no data; ``--days``
limits the length.
"""

import argparse
import csv
import importlib.util
import json
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

import optax_varynorm as vn

TRADING_DAYS = 252
LEARNING_RATES = np.geomspace(1e-3, 1e2, 26)


def real_market(name):
    """Price relatives: what each stock is worth at the end of a day, in units of its start."""
    found = importlib.util.find_spec("universal")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(
            "The prices ship with the package universal-portfolios. Install it with `pip install "
            "--no-deps universal-portfolios`, or play `--market synthetic`."
        )
    path = pathlib.Path(found.submodule_search_locations[0]) / "data" / f"{name}.csv"
    with path.open() as lines:
        prices = np.array(list(csv.reader(lines))[1:], float)
    # Prices start at one before the first row.
    return prices / np.vstack([np.ones_like(prices[:1]), prices[:-1]])


def synthetic_market(days, stocks=20, seed=0):
    """Log-normal days: one factor for all, one for each of four industries, and own noise.

    Volatilities differ by a factor of three, and growth between -5% and 20% a year.
    """
    rng = np.random.default_rng(seed)
    volatility = np.geomspace(0.01, 0.03, stocks)
    growth = rng.uniform(-0.05, 0.2, size=stocks) / TRADING_DAYS
    industry = np.eye(4)[np.arange(stocks) % 4]
    market = 0.5 * rng.normal(size=(days, 1))
    shocks = market + 0.5 * rng.normal(size=(days, 4)) @ industry.T
    shocks += np.sqrt(0.5) * rng.normal(size=(days, stocks))
    return np.exp(growth + volatility * shocks - volatility**2 / 2)


def loss(portfolio, relatives):
    return -jnp.log(relatives @ portfolio)


def play_varynorm(make, relatives):
    """Final state and daily log growth. A constant added to all losses changes nothing on the
    simplex, so each gradient is sent without its mean.
    """
    stocks = relatives.shape[1]
    optimizer = make(domain=vn.simplex())

    @jax.jit
    def run(relatives):
        def trade(carry, day):
            _, state = carry
            # The exact iterate: positive, and of sum one.
            portfolio = state.grounded_learner_state.learner_state.projected
            value, gradient = jax.value_and_grad(loss)(portfolio, day)
            _, state = optimizer.update(gradient - jnp.mean(gradient), state, portfolio)
            return (portfolio, state), -value

        start = jnp.full(stocks, 1 / stocks)
        return jax.lax.scan(trade, (start, optimizer.init(start)), relatives)

    (_, state), growth = run(relatives)
    return state, np.asarray(growth)


@jax.jit
def exponentiated_gradient(rates, relatives):
    """Helmbold, Schapire, Singer and Warmuth 1998, at all learning rates at once."""

    def trade(log_weights, day):
        portfolio = jax.nn.softmax(log_weights, axis=-1)
        value = portfolio @ day
        step = rates[:, None] * day[None, :] / value[:, None]
        return jax.nn.log_softmax(log_weights + step, axis=-1), jnp.log(value)

    start = jnp.zeros((len(rates), relatives.shape[1]))
    return jax.lax.scan(trade, start, relatives)[1].T


def best_constant(relatives, steps=20_000):
    """Daily log growth of the best constant portfolio in hindsight (Cover's iteration)."""

    def improve(_, w):
        return w * jnp.mean(relatives / (relatives @ w)[:, None], axis=0)

    start = jnp.full(relatives.shape[1], 1 / relatives.shape[1])
    return np.asarray(jnp.log(relatives @ jax.lax.fori_loop(0, steps, improve, start)))


def compare(relatives, seconds_of):
    relatives = jnp.asarray(relatives)
    growth = {"uniform, rebalanced daily": np.log(np.mean(np.asarray(relatives), axis=1))}
    rates = exponentiated_gradient(jnp.asarray(LEARNING_RATES), relatives)
    best = int(np.argmax(np.sum(rates, axis=1)))
    growth["exponentiated gradient, rate 0.05"] = np.asarray(
        exponentiated_gradient(jnp.array([0.05]), relatives)[0]
    )
    name = f"exponentiated gradient, best rate ({LEARNING_RATES[best]:.2g})"
    growth[name] = np.asarray(rates[best])
    counts, clipped = {}, {}
    for make in (vn.varynorm, vn.fixed_norm, vn.diagonal, vn.full_matrix, vn.full_matrix_adagrad):
        began = time.perf_counter()
        state, growth[make.__name__] = play_varynorm(make, relatives)
        seconds_of[make.__name__] = time.perf_counter() - began
        layer = state.grounded_learner_state
        counts[make.__name__] = int(layer.learner_state.inaccurate_projections)
        clipped[make.__name__] = int(layer.clipped_rounds)
    growth["best constant portfolio in hindsight"] = best_constant(relatives)
    return growth, counts, clipped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--market", default="nyse_o", help="nyse_o, nyse_n, djia, sp500, synthetic")
    parser.add_argument("--days", type=int, help="play only so many")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))
    arguments = parser.parse_args()
    if arguments.market == "synthetic":
        relatives = synthetic_market(arguments.days or 2520)
    else:
        relatives = real_market(arguments.market)[: arguments.days]

    seconds: dict[str, float] = {}
    with jax.enable_x64(True):
        growth, inaccurate, clipped = compare(relatives, seconds)
    days, stocks = relatives.shape
    print(f"{arguments.market}: {stocks} stocks, {days} days\n")
    print(f"{'':<46}{'wealth':>10}{'a year':>9}{'log wealth':>12}")
    rows = {}
    for name, daily in growth.items():
        total = float(np.sum(daily))
        rows[name] = total
        yearly = np.exp(total * TRADING_DAYS / days) - 1
        print(f"{name:<46}{np.exp(total):>10.2f}{yearly:>9.1%}{total:>12.3f}")
    print("\nseconds, compilation included: " + str({n: round(s, 1) for n, s in seconds.items()}))
    print(f"projections above the tolerance: {inaccurate}\ngradients clipped: {clipped}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = {"log_wealth": rows, "inaccurate_projections": inaccurate, "seconds": seconds}
    (arguments.out / "portfolio.json").write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
