"""Progressive loss along a stream of any length, in bounded memory."""

import math

import numpy as np

MOST_BLOCKS = 512


class LossCurve:
    """Sums of losses over blocks of rows; when there are too many blocks, pairs become one.

    >>> curve = LossCurve()
    >>> curve.add(np.ones(100))
    >>> curve.points()[-1]
    (100, 1.0)
    """

    def __init__(self, rows_a_block: int = 1, rows: int = 0, sums: tuple[float, ...] = ()):
        self.rows_a_block = rows_a_block
        self.rows = rows
        self.sums = list(sums)

    def add(self, losses: np.ndarray) -> None:
        """The losses of the next rows."""
        losses = np.asarray(losses, np.float64)
        while len(losses):
            block, filled = divmod(self.rows, self.rows_a_block)
            if block == MOST_BLOCKS:
                self.sums = [a + b for a, b in zip(self.sums[::2], self.sums[1::2], strict=True)]
                self.rows_a_block *= 2
                continue
            taken = losses[: self.rows_a_block - filled]
            if filled == 0:
                self.sums.append(0.0)
            self.sums[block] = math.fsum([self.sums[block], *taken])
            self.rows += len(taken)
            losses = losses[len(taken) :]

    def points(self) -> list[tuple[int, float]]:
        """After each block: the rows so far, and the mean loss of all of them."""
        ends = [min((i + 1) * self.rows_a_block, self.rows) for i in range(len(self.sums))]
        totals = np.cumsum(self.sums)
        return [(end, float(total) / end) for end, total in zip(ends, totals, strict=True)]

    def to_json(self) -> dict:
        return {"rows_a_block": self.rows_a_block, "rows": self.rows, "sums": self.sums}
