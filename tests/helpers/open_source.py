"""An open source under a fake clock, with a poisoned slot in which every write outside of the picture is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kernels.image import ImageSpec, ImageView, Pixels
from kernels.plan import slot_source_spec
from pipeline.frame import Capture
from pipeline.sources.base import FrameCorrupt, Source, SourceEnded
from tests.helpers.fake_time import FakeTime
from tests.kernels.oracles import bytes_of

POISON = 0xA5
TAIL_BYTES = 4096

Opener = Callable[[Source], "OpenSource"]


class OpenSource:
    """``corrupt`` counts what ``fill_all`` met; ``use`` makes a slot for another format."""

    def __init__(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source = source
        self.time = FakeTime(source, monkeypatch)
        self.corrupt = 0
        self.use(source.open().image)

    def use(self, image: ImageSpec) -> None:
        self.spec = slot_source_spec(image)
        self.buffer = np.empty(self.spec.nbytes + TAIL_BYTES, np.uint8)
        self.view = ImageView(self.spec, self.buffer)

    def fill(self) -> tuple[list[Pixels], Capture]:
        """The next frame's planes as rows of bytes, copied out of the slot."""
        self.buffer[:] = POISON
        capture = self.source.fill(self.view)
        planes = [bytes_of(self.view, i).copy() for i in range(len(self.spec.format.planes))]
        outside = np.ones(self.buffer.size, bool)
        for plane, offset, stride in zip(planes, self.spec.offsets, self.spec.strides, strict=True):
            outside[np.arange(plane.shape[0])[:, None] * stride + offset + np.arange(plane.shape[1])] = False
        assert (self.buffer[outside] == POISON).all()
        return planes, capture

    def is_untouched(self) -> bool:
        """True if the last fill wrote nothing at all."""
        return bool((self.buffer == POISON).all())

    def fill_all(self) -> list[tuple[list[Pixels], Capture]]:
        """Every frame up to the end; what is corrupt is counted."""
        frames = []
        while True:
            try:
                frames.append(self.fill())
            except FrameCorrupt:
                self.corrupt += 1
            except SourceEnded:
                return frames


def opener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """For a fixture: opens sources, and closes them at its end."""
    opened: list[OpenSource] = []

    def open_source(source: Source) -> OpenSource:
        opened.append(OpenSource(source, monkeypatch))
        return opened[-1]

    yield open_source
    for one in opened:
        one.source.close()
