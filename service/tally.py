"""What the service counts of each camera's viewers. Written by the event loop only; read by any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.counters import MOST_TRACED
from pipeline.latency import HistogramSnapshot, LogHistogram
from pipeline.recent import Recent

MOST_ENCODINGS = 4 * MOST_TRACED  # remembered of a camera's renditions together
MOST_DELIVERIES = 8 * MOST_TRACED  # and of its viewers


@dataclass(frozen=True, slots=True)
class Encoding:
    """One picture that was made of a frame. Times are ``time.monotonic_ns()``."""

    sequence: int
    rendition: str
    started_ns: int
    ended_ns: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """One picture that was handed to a viewer's socket; it was there from ``encoded_ns`` on."""

    sequence: int
    viewer: str
    encoded_ns: int
    delivered_ns: int


@dataclass(frozen=True, slots=True)
class ViewerStatistics:
    """One viewer at one moment. ``skipped`` are frames between two it was sent; with ``fps`` set, not counted.

    ``age_ns`` is how old the last frame was when the kernel had all of it; rates are over the last second,
    bits of the pictures alone. None where there is none yet. ``asked`` is what else the client asked for.
    """

    name: str
    kind: str
    view: str
    quality: int
    width: int | None
    fps: float | None
    sent: int
    sent_bytes: int
    repeated: int
    skipped: int
    age_ns: int | None
    bits_per_s: float | None
    frames_per_s: float | None
    paused: bool
    asked: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class LiveStatistics:
    """One camera's viewers at one moment. Counters never go down. ``encoded`` is by encoder, ``viewers`` by kind."""

    encoded: Mapping[str, int]
    encode_errors: int
    encode: HistogramSnapshot
    deliver: HistogramSnapshot
    viewers: Mapping[str, int]
    variants: int
    sent: int
    skipped: int
    cut_off: int
    connections: tuple[ViewerStatistics, ...] = ()
    sent_bytes: int = 0


class LiveTally:
    """Counters of one camera, for the life of the process."""

    def __init__(self) -> None:
        self.encoded: dict[str, int] = {}
        self.encode_errors = 0
        self.encode = LogHistogram()
        self.deliver = LogHistogram()
        self.sent = 0
        self.sent_bytes = 0
        self.skipped = 0
        self.cut_off = 0
        self.encodings: Recent[Encoding] = Recent(MOST_ENCODINGS)
        self.deliveries: Recent[Delivery] = Recent(MOST_DELIVERIES)

    def count_encoded(self, encoder: str, encode_ns: int) -> None:
        self.encoded[encoder] = self.encoded.get(encoder, 0) + 1
        self.encode.record(encode_ns)
