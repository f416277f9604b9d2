"""What a model knows of the table it learned from: its columns, and the features they become.

* A numeric column is one feature, 0 where a value is missing; if any was missing in the scan there
  is a second feature, one where a value is missing.
* A categorical column is one feature a category, and one for missing if any was.
* LIBSVM files have features already.
"""

from typing import Any, NamedTuple


class Numeric(NamedTuple):
    name: str
    has_missing: bool

    @property
    def width(self) -> int:
        return 1 + self.has_missing


class Categorical(NamedTuple):
    name: str
    has_missing: bool
    categories: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.categories) + self.has_missing


class Target(NamedTuple):
    """Attributes:
    labels: the classes: numbers or strings, in order; ``None`` if the target is a quantity.
    """

    name: str
    labels: tuple[float, ...] | tuple[str, ...] | None

    @property
    def is_text(self) -> bool:
        return self.labels is not None and isinstance(self.labels[0], str)


class Schema(NamedTuple):
    """Attributes:
    columns: of a CSV or parquet file, without the target and what was left out.
    sparse_width: the number of features of a LIBSVM file; ``None`` of others.
    """

    target: Target
    columns: tuple[Numeric | Categorical, ...]
    sparse_width: int | None = None

    @property
    def width(self) -> int:
        if self.sparse_width is not None:
            return self.sparse_width
        return sum(column.width for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target._asdict(),
            "columns": [column._asdict() for column in self.columns],
            "sparse_width": self.sparse_width,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Schema":
        labels = stored["target"]["labels"]
        target = Target(stored["target"]["name"], None if labels is None else tuple(labels))
        columns = [
            Categorical(c["name"], c["has_missing"], tuple(c["categories"]))
            if "categories" in c
            else Numeric(**c)
            for c in stored["columns"]
        ]
        return cls(target, tuple(columns), stored["sparse_width"])


def label_text(label: float | str) -> str:
    """A class as it is written: 1 rather than 1.0."""
    return label if isinstance(label, str) else f"{label:.17g}"
