"""What the service counts of each camera's viewers. Written by the event loop only; read by any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.latency import HistogramSnapshot, LogHistogram


@dataclass(frozen=True, slots=True)
class ViewerStatistics:
    """One viewer at one moment. ``skipped`` are frames between two it was sent; with ``fps`` set, not counted."""

    kind: str
    view: str
    quality: int
    width: int | None
    fps: float | None
    sent: int
    repeated: int
    skipped: int


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


class LiveTally:
    """Counters of one camera, for the life of the process."""

    def __init__(self) -> None:
        self.encoded: dict[str, int] = {}
        self.encode_errors = 0
        self.encode = LogHistogram()
        self.deliver = LogHistogram()
        self.sent = 0
        self.skipped = 0
        self.cut_off = 0

    def count_encoded(self, encoder: str, encode_ns: int) -> None:
        self.encoded[encoder] = self.encoded.get(encoder, 0) + 1
        self.encode.record(encode_ns)
