"""What is counted, and the frozen snapshots that leave the package. Counters have one writer each and no lock."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels.image import ImageSpec
from pipeline.latency import HistogramSnapshot
from pipeline.sources.base import SourceFormat
from pipeline.state import CameraState


@dataclass(frozen=True, slots=True)
class RingStatistics:
    """Where a ring's slots were at one moment; the eight counts by state add up to ``slots``.

    ``finishing`` slots have a result the device is still working on, ``pending`` ones are held by nothing but device
    work, ``released`` ones have given their memory back (only in a retired or closed ring). ``*_leases`` are held
    outside the ring (its own lease of the newest result is not counted); ``nbytes`` is the memory held.
    """

    generation: int
    slots: int
    free: int
    writing: int
    ready: int
    processing: int
    finishing: int
    done: int
    pending: int
    released: int
    write_leases: int
    process_leases: int
    read_leases: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CameraHealth:
    """``ready``: shows a fresh processed frame, or is not expected to (ended, stopped). ``reasons`` says why not."""

    ready: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CameraStatistics:
    """One camera at one moment: plain frozen data. Counters never go down, whatever reconnects or restarts.

    ``uri`` and ``cause`` carry no credentials. ``captured`` frames were published by the source; each is later
    ``processed`` or dropped as ``overrun``, ``stale``, ``device``, ``memory``, ``format``, ``closed`` or ``lost``.
    Frames dropped as ``no_slot`` or for a source's own reason (``corrupt``, …) were never captured. ``memory`` is
    the strategy, and ``choice`` what a measurement made of it, plain data, where there was one. ``dropped`` and
    ``copied_bytes`` are by reason and by path: ``capture`` by a CPU, ``to_device`` and ``from_device`` by the
    device's copy engines. ``copied_bytes_per_frame`` is of the newest frame, None before the first.
    ``link_bytes_*`` are by the plan, 0 where the device has no link (not ``linked``). ``latency`` is by stage:
    ``capture``, ``queue``, ``process``, ``gpu`` (absent where the device does not tell) and ``total``; the
    ``warmup_frames``, the first of each compiled chain, are left out of the last three. ``source``, ``result`` and
    ``ring`` are None until the source was first open. ``fps`` is of results, ``capture_fps`` of published frames,
    None before there are two. ``age_ns`` is since the newest result's picture was taken, and ``sequence`` its
    number; None before the first.
    """

    name: str
    uri: str
    state: CameraState
    cause: str | None
    captured: int
    processed: int
    reconnects: int
    dropped: Mapping[str, int]
    memory: str
    choice: Mapping[str, Any] | None
    linked: bool
    copied_bytes: Mapping[str, int]
    copied_bytes_per_frame: int | None
    link_bytes_in: int
    link_bytes_out: int
    latency: Mapping[str, HistogramSnapshot]
    warmup_frames: int
    source: SourceFormat | None
    result: ImageSpec | None
    chain_version: int
    fps: float | None
    capture_fps: float | None
    age_ns: int | None
    sequence: int | None
    ring: RingStatistics | None


class Tally:
    """Counts by name, for what should not happen often; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount

    def counts(self) -> dict[str, int]:
        """A copy, by name."""
        with self._lock:
            return dict(self._counts)


class RateMeter:
    """Events per second over the last two seconds or so. :meth:`tick` from one thread, :meth:`per_second` from any."""

    WINDOW_NS = 2_000_000_000

    def __init__(self) -> None:
        self._ticks: deque[int] = deque(maxlen=256)

    def tick(self, now_ns: int) -> None:
        self._ticks.append(now_ns)

    def per_second(self, now_ns: int | None = None) -> float | None:
        """None before two events; falls towards 0 when they stop."""
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        ticks = list(self._ticks.copy())
        if len(ticks) < 2:
            return None
        recent = [tick for tick in ticks if now_ns - tick <= self.WINDOW_NS]
        if len(recent) < 2:
            recent = ticks[-2:]
        period_ns = (recent[-1] - recent[0]) / (len(recent) - 1)
        # A silence longer than twice the period is part of the rate.
        idle_ns = now_ns - recent[-1]
        span_ns = recent[-1] - recent[0] + (idle_ns if idle_ns > 2 * period_ns else 0)
        return (len(recent) - 1) * 1e9 / span_ns if span_ns > 0 else None
