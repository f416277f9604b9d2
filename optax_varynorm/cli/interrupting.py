"""Ctrl-C and SIGTERM, which wait for the batch to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

# What a terminal sends, and what ``kill``, a batch system and a shutdown send.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def deferred() -> Iterator[threading.Event]:
    """An event that the first of these signals sets; the second one ends the process as ever."""
    asked = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def as_before():
        for number, handler in before.items():
            signal.signal(number, handler)

    def remember(number, frame):
        asked.set()
        as_before()

    for number in SIGNALS:
        before[number] = signal.signal(number, remember)
    try:
        yield asked
    finally:
        as_before()
