"""A cv2.VideoCapture for tests: plays a script, writes into the given array as the real one does, notes misuse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]


@dataclass
class Shot:
    """What one grab gives. ``frame`` None: retrieve says (False, None); ``stubborn``: never into the given array."""

    frame: Array | None
    pos_ms: float = 0.0
    takes_s: float = 0.0
    stubborn: bool = False
    error: Exception | None = None


Script = Iterable[Shot | None]  # None: grab says False, from then on for ever


@dataclass
class FakeCapture:
    """One capture. ``breaches`` are calls from two threads at once, or after ``release``."""

    script: Iterator[Shot | None]
    props: dict[int, float]
    opens: bool = True
    breaches: list[str] = field(default_factory=list)
    wishes: list[tuple[int, float]] = field(default_factory=list)
    refuses: frozenset[int] = frozenset()
    released_by: list[str] = field(default_factory=list)
    grabs: int = 0
    reading: threading.Event = field(default_factory=threading.Event)
    _busy: threading.Lock = field(default_factory=threading.Lock)
    _shot: Shot | None = None
    _over: bool = False

    def _enter(self, what: str) -> None:
        if not self._busy.acquire(blocking=False):
            self.breaches.append(f"{what} by {threading.current_thread().name} while another call was active")
            raise SystemError("terminate called without an active exception")
        if self.released_by:
            self.breaches.append(f"{what} after release")

    def isOpened(self) -> bool:  # noqa: N802
        return self.opens and not self.released_by

    def get(self, prop: int) -> float:
        if prop == cv2.CAP_PROP_POS_MSEC and self._shot is not None:
            return self._shot.pos_ms
        return self.props.get(prop, 0.0)

    def set(self, prop: int, value: float) -> bool:
        self.wishes.append((prop, value))
        if prop in self.refuses:
            return False
        self.props[prop] = value
        return True

    def grab(self) -> bool:
        self._enter("grab")
        try:
            self.grabs += 1
            shot = None if self._over else next(self.script, None)
            self._over = shot is None
            if shot is None:
                return False
            self.reading.set()
            if shot.takes_s:
                time.sleep(shot.takes_s)
            self._shot = shot
            return True
        finally:
            self._busy.release()

    def retrieve(self, image: Array | None = None) -> tuple[bool, Array | None]:
        self._enter("retrieve")
        try:
            shot, frame = self._shot, None if self._shot is None else self._shot.frame
            if shot is not None and shot.error is not None:
                raise shot.error
            if shot is None or frame is None:
                return False, None
            if image is None or shot.stubborn or (image.shape, image.dtype) != (frame.shape, frame.dtype):
                return True, frame.copy()
            np.copyto(image, frame)
            return True, image
        finally:
            self._busy.release()

    def read(self, image: Array | None = None) -> tuple[bool, Array | None]:
        return self.retrieve(image) if self.grab() else (False, None)

    def release(self) -> None:
        self._enter("release")
        self.released_by.append(threading.current_thread().name)
        self._busy.release()


class FakeOpencv:
    """Stands for ``cv2.VideoCapture``: each opening takes the next of ``make``, the last one again and again."""

    def __init__(self, *make: Callable[[], FakeCapture]) -> None:
        self._make = list(make)
        self.opened: list[tuple[int | str, int, list[int]]] = []
        self.captures: list[FakeCapture] = []

    def __call__(self, name: int | str, backend: int = cv2.CAP_ANY, options: Sequence[int] = ()) -> FakeCapture:
        self.opened.append((name, backend, list(options)))
        self.captures.append(self._make[min(len(self.captures), len(self._make) - 1)]())
        return self.captures[-1]

    def breaches(self) -> list[str]:
        return [breach for capture in self.captures for breach in capture.breaches]


def fake_capture(
    script: Script = (), *, refuses: Iterable[int] = (), opens: bool = True, **props: float
) -> FakeCapture:
    """A capture; ``props`` by the end of their name: ``FPS=30``."""
    values = {int(getattr(cv2, f"CAP_PROP_{name}")): float(value) for name, value in props.items()}
    return FakeCapture(iter(script), values, opens, refuses=frozenset(refuses))


def install(monkeypatch: pytest.MonkeyPatch, *make: Callable[[], FakeCapture]) -> FakeOpencv:
    """Put a fake in the place of ``cv2.VideoCapture``."""
    fake = FakeOpencv(*make)
    monkeypatch.setattr(cv2, "VideoCapture", fake)
    return fake


def numbered(number: int, width: int = 64, height: int = 48, channels: int = 3) -> Array:
    """A frame with ``number`` in every byte, and noise in its first row."""
    shape = (height, width) if channels == 0 else (height, width, channels)
    frame = np.full(shape, number % 256, np.uint8)
    frame[0] = np.random.default_rng(number).integers(0, 256, shape[1:], np.uint8)
    return frame
