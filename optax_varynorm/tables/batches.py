"""Batches of one size, whatever sizes a reader hands out.

A run that goes on in the middle of a file then meets the batches it would have met anyway.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def of_size(batches: Iterable[pa.RecordBatch], size: int, skip: int) -> Iterator[pa.Table]:
    """Tables of ``size`` rows, the last one shorter, without the first ``skip`` rows."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        left_out = min(skip, batch.num_rows)
        skip -= left_out
        batch = batch.slice(left_out)
        waiting.append(batch)
        count += batch.num_rows
        if count >= size:
            together = pa.Table.from_batches(waiting)
            whole = count - count % size
            for first in range(0, whole, size):
                yield together.slice(first, size)
            waiting = together.slice(whole).to_batches()
            count -= whole
    if count:
        yield pa.Table.from_batches(waiting)
