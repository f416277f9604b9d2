"""What was measured: kept as JSON, and the peers' part reused until something about it changes."""

import argparse
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
import optax


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that all comparisons share."""
    parser.add_argument(
        "--only",
        help="names or kinds (ours, untuned, tuned, peers) to run, with commas between; "
        "peers left out are compared by their last run's results",
    )
    parser.add_argument(
        "--try",
        dest="tries",
        action="append",
        default=[],
        metavar="EXPRESSION",
        help="one more of ours, such as 'vn.fixed_norm(epsilon=10.0)'; may be repeated",
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"))


def pick(flag: str, text: str | None, available: Iterable[str]) -> list[str]:
    """The names in a flag's text, or all that are available without one."""
    names = [*available] if text is None else text.split(",")
    if unknown := set(names) - set(available):
        raise SystemExit(f"{flag} knows {', '.join(available)}; not {', '.join(unknown)}.")
    return names


def fingerprint(*parts: Any) -> str:
    """Changes with any array or setting that a result depends on, and with the libraries."""
    digest = hashlib.sha256(f"{optax.__version__} {jax.__version__}".encode())
    for leaf in jax.tree.leaves(parts):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def measure_all(
    contenders: dict[str, Any],
    chosen: set[str],
    measure: Callable[[Any], dict[str, Any]],
    cache: pathlib.Path,
    key: str,
) -> dict[str, dict[str, Any]]:
    """The chosen ones measured, the other peers from the cache where it has this key.

    Args:
      contenders: all, by name; each has a ``kind`` and ``settings`` that its results depend on.
      chosen: names to measure now.
      measure: gives a record, which must be JSON; ``kind`` and ``cached`` are added to it.
      cache: a JSON file of peers' records by key, brought up to date.
      key: says what the records depend on.
    """
    stored = json.loads(cache.read_text()) if cache.exists() else {}
    records = {}
    for name, contender in contenders.items():
        known = stored.get(key, {}).get(f"{name} {contender.settings}")
        if name in chosen:
            record = {"kind": contender.kind, **measure(contender)}
            records[name] = {**record, "cached": False}
            if contender.kind != "ours":
                stored.setdefault(key, {})[f"{name} {contender.settings}"] = record
        elif known is not None and contender.kind != "ours":
            records[name] = {**known, "cached": True}
    write(cache, stored)
    return records


def write(path: pathlib.Path, results: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2, allow_nan=False))


def best(records: dict[str, dict[str, Any]], kind: str, score: Callable[[dict], float]) -> float:
    """The lowest score of a kind; not a number if none of it was measured."""
    scores = [score(record) for record in records.values() if record["kind"] == kind]
    return min(scores, default=float("nan"))


def show(headings: list[str], rows: list[list[str]]) -> None:
    """A table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in [headings, ["-" * width for width in widths], *rows]:
        first, *others = row
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))


def mark(text: str, record: dict[str, Any]) -> str:
    return f"{text}*" if record["cached"] else text


def cached_note(records: Iterable[dict[str, Any]]) -> str:
    if any(record["cached"] for record in records):
        return "* not run now: cached from an earlier run on the same data and settings"
    return "All of these were run now."
