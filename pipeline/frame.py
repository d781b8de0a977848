"""What is known of one frame, and travels with it from the source to the last header."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capture:
    """What a source says of the frame it has just written. Times are ``time.monotonic_ns()``.

    ``captured_ns`` is when the picture was taken, as well as the source knows: the driver's stamp where it is on the
    monotonic clock (``clock`` "driver"), else when the frame arrived ("host"). ``wall_ns`` is the same instant on the
    wall clock, for labels only. ``copied_bytes`` counts what a CPU copied to get the frame into the slot, 0 where the
    producer wrote there itself. ``pts_s`` is the media time of a file, in seconds.
    """

    captured_ns: int
    wall_ns: int
    clock: str = "host"
    copied_bytes: int = 0
    pts_s: float | None = None


@dataclass(slots=True)
class FrameTimes:
    """When a frame passed each arrow, ``time.monotonic_ns()``; 0 where it has not been."""

    published_ns: int = 0
    picked_ns: int = 0
    done_ns: int = 0
    gpu_ns: int = 0
    submitted_ns: int = 0


@dataclass(slots=True)
class Frame:
    """One frame's identity and times. Written only by the thread that holds the slot's write or process lease.

    ``sequence`` counts every frame a camera published since it was added and never resets; ``chain_version`` is that
    of the chain that made the result. ``warmup``: the first of an executor, not counted in ``process`` and ``total``.
    """

    sequence: int
    capture: Capture
    times: FrameTimes
    chain_version: int = 0
    warmup: bool = False
