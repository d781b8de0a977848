"""Where those who read a camera's results want them: in host memory, or on the device that made them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum


class Place(Enum):
    """Where a result is read."""

    HOST = "host"
    DEVICE = "device"


class Demand:
    """Counts of readers by place. Any thread; read by the stage for each frame, without the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims = {Place.HOST: 0, Place.DEVICE: 0}

    def claim(self, place: Place) -> Callable[[], None]:
        """Count one more reader at ``place`` until the function that is returned is called; twice is harmless."""
        held = [place]
        with self._lock:
            self._claims[place] += 1

        def release() -> None:
            with self._lock:
                if held:
                    self._claims[held.pop()] -= 1

        return release

    @property
    def place(self) -> Place:
        """Where results should be written: to the host if they are read there and nowhere else.

        With readers at both places they stay on the device, and a copy engine brings them to those on the host.
        """
        return Place.HOST if self._claims[Place.HOST] and not self._claims[Place.DEVICE] else Place.DEVICE
