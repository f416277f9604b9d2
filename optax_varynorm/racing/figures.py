"""Numbers for JSON and for tables, also where a run diverged."""

from typing import Any

import numpy as np

from optax_varynorm.racing.peers import Contender


def finite(values: Any) -> Any:
    """As lists for JSON, with ``None`` for what is not finite."""
    array = np.asarray(values, np.float64).astype(object)
    array[~np.isfinite(values)] = None
    return array.tolist()


def numbers(values: Any) -> np.ndarray:
    """The inverse of ``finite``: infinity where a run diverged."""
    array = np.asarray(values, np.float64)
    return np.where(np.isnan(array), np.inf, array)


def by_learning_rate(contender: Contender, winner: int, losses: Any) -> dict[str, Any]:
    """For the record of a tuned contender: its best rate, and the losses at every other."""
    rates = contender.learning_rates
    if not rates:
        return {}
    table = dict(zip(map(str, rates), finite(losses), strict=True))
    return {"learning_rate": rates[winner], "by_learning_rate": table}


def rate_note(record: dict[str, Any]) -> str:
    """The best learning rate in hindsight, and whether a better one may lie outside the grid."""
    rates = sorted(float(rate) for rate in record.get("by_learning_rate", {}))
    if not rates:
        return ""
    rate = record["learning_rate"]
    return f"{rate:.3g}" + (" (edge)" if rate in (rates[0], rates[-1]) else "")


def figure(value: float, digits: int = 4) -> str:
    if np.isposinf(value):
        return "diverged"
    return "-" if np.isnan(value) else f"{value:.{digits}g}"
