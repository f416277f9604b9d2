"""What a value out of JSON has to be: a kind is a function that raises ``UnfitError`` else."""

import math
from collections.abc import Callable
from typing import Any

Kind = Callable[[Any], None]

# Beyond it not every whole number is one of JSON's.
LARGEST_WHOLE = 2**53


class UnfitError(ValueError):
    """The content of a file is not what it has to be."""


def require(condition: bool, meaning: str) -> None:
    if not condition:
        raise UnfitError(meaning)


def flag(value: Any) -> None:
    require(isinstance(value, bool), "true or false")


def text(value: Any) -> None:
    require(isinstance(value, str), "a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UnfitError("a text that can be written") from error


def whole(low: int, high: int = LARGEST_WHOLE) -> Kind:
    """A whole number; true and false are none."""

    def check(value):
        require(type(value) is int and low <= value <= high, f"a whole number from {low} to {high}")

    return check


def number(low: float, high: float = math.inf) -> Kind:
    """A number, ends included."""

    def check(value):
        require(type(value) in (int, float), "a number")
        require(low <= value <= high, f"a number from {low} to {high}")

    return check


def loss_sum(value: Any) -> None:
    """Of losses, which may have been infinite or no number."""
    require(type(value) in (int, float) and not value < 0, "a sum of losses")


def one_of(*choices: Any) -> Kind:
    def check(value):
        require(any(type(value) is type(c) and value == c for c in choices), f"one of {choices}")

    return check


def optional(kind: Kind) -> Kind:
    """Of this kind, or null."""

    def check(value):
        if value is not None:
            kind(value)

    return check


def list_of(kind: Kind, fewest: int = 0, most: float = math.inf) -> Kind:
    def check(value):
        require(isinstance(value, list) and fewest <= len(value) <= most, "a list of that length")
        for each in value:
            kind(each)

    return check


def record(**kinds: Kind) -> Kind:
    """An object with these fields and no others."""

    def check(value):
        require(isinstance(value, dict) and value.keys() == kinds.keys(), f"fields {[*kinds]}")
        for name, kind in kinds.items():
            kind(value[name])

    return check


def by_field(name: str, kinds: dict[Any, Kind]) -> Kind:
    """Of the kind that one of the object's own fields names; absent is ``None``."""

    def check(value):
        require(isinstance(value, dict), "an object")
        named = value.get(name)
        require(named is None or isinstance(named, str), f"a kind as {name}")
        require(named in kinds, f"{name} one of {[*kinds]}")
        kinds[named](value)

    return check
