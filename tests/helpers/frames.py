"""Reads a source into slots of a real ring without the camera's threads, frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kernels.device import HostDevice
from kernels.image import Pixels
from pipeline.frame import Capture
from pipeline.lease import WriteLease
from pipeline.ring import Ring
from pipeline.sources.base import FormatChanged, FrameCorrupt, Source, SourceFormat, WriteSlot

S = TypeVar("S", bound=Source)


class Frames(Generic[S]):
    """A source into slots of a real ring, without threads: each frame is looked at and let go."""

    def __init__(self, source: S) -> None:
        """Opens the source."""
        self.source = source
        self.seen: list[tuple[Pixels, Capture]] = []
        self.kept: list[WriteLease] = []
        self.keep = False  # frames, instead of letting them go
        self.lost_frames = 0
        self.corrupt: list[str] = []
        self.ring: Ring | None = None
        try:
            self.format: SourceFormat = source.open()
        except BaseException:
            source.close()
            raise
        self.make_ring()

    def make_ring(self) -> None:
        self.close_ring()
        self.ring = Ring(HostDevice(), self.format.image, slots=4, layout=self.format.layout)

    def let_go(self) -> None:
        """Give up the frames that were kept."""
        for slot in self.kept:
            slot.give_back()
        self.kept.clear()

    def close_ring(self) -> None:
        self.let_go()
        if self.ring is not None:
            assert self.ring.close(1), "a slot was not given back"

    def acquire(self) -> WriteSlot | None:
        assert self.ring is not None
        return self.ring.acquire_write()

    def publish(self, slot: WriteSlot, capture: Capture) -> None:
        assert isinstance(slot, WriteLease)
        self.seen.append((slot.view.packed(), capture))
        if self.keep:
            self.kept.append(slot)
        else:
            slot.view.buffer.fill(0xAA)  # what is not written anew shows
            slot.give_back()

    def give_back(self, slot: WriteSlot, reason: str | None = None) -> None:
        assert isinstance(slot, WriteLease)
        slot.give_back()

    def lost(self, reason: str, count: int = 1) -> None:
        self.lost_frames += count

    def read_until(self, enough: Callable[[], bool], most: int = 120) -> None:
        for _ in range(most):
            if enough():
                return
            try:
                self.source.read(self)
            except FrameCorrupt as error:
                self.corrupt.append(error.reason)
            except FormatChanged as error:
                self.format = error.format
                self.make_ring()
        assert enough(), f"not within {most} reads: {len(self.seen)} frames, {self.corrupt}"

    def read(self, count: int) -> list[tuple[Pixels, Capture]]:
        """That many more frames."""
        begin = len(self.seen)
        self.read_until(lambda: len(self.seen) >= begin + count)
        return self.seen[begin:]

    def __enter__(self) -> Frames[S]:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        self.close_ring()
