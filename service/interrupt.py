"""Ctrl-C for commands that can say what they have so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # the exit code that shells give for SIGINT


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event, for whoever asks between two steps; another one ends the command at once.

    In the main thread; elsewhere nothing sets the event.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
