"""Ctrl-C that waits for the batch to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def deferred() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one interrupts as ever."""
    asked = threading.Event()

    def remember(number, frame):
        asked.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
