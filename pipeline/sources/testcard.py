from __future__ import annotations

import time
from fractions import Fraction
from typing import ClassVar

from pydantic import Field, field_validator

from kernels.formats import FORMATS, pixel_format
from kernels.image import MAX_SIDE_PX, ImageSpec, ImageView
from pipeline.frame import Capture
from pipeline.sources._card import ALLOWED_SIZES, MIN_HEIGHT_PX, MIN_WIDTH_PX, Card
from pipeline.sources._fields import Rate, Size
from pipeline.sources._pace import Schedule
from pipeline.sources.base import Source, SourceConfig, SourceError, SourceFormat

_ALLOWED_FPS = "1 to 1000, also as a fraction (30000/1001)"


class TestcardConfig(SourceConfig):
    __test__: ClassVar[bool] = False  # the name is the scheme's, not a test's

    size: Size = Field(
        default=(1280, 720),
        description="Width x height of the picture.",
        json_schema_extra={"default": "1280x720", "x-allowed": ALLOWED_SIZES},
    )
    fps: Rate = Field(
        default=Fraction(30), description="Frames per second.", json_schema_extra={"x-allowed": _ALLOWED_FPS}
    )
    format: str = Field(default="NV12", description="Pixel format.", json_schema_extra={"enum": list(FORMATS)})

    @field_validator("size")
    @classmethod
    def _fits(cls, size: tuple[int, int]) -> tuple[int, int]:
        width, height = size
        if not (MIN_WIDTH_PX <= width <= MAX_SIDE_PX and MIN_HEIGHT_PX <= height <= MAX_SIDE_PX):
            raise ValueError("is outside what a card can have")
        return size

    @field_validator("fps")
    @classmethod
    def _in_range(cls, fps: Fraction) -> Fraction:
        if not 1 <= fps <= 1000:
            raise ValueError("is out of range")
        return fps

    @field_validator("format")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in FORMATS:
            raise ValueError("is not a pixel format")
        return name


class Testcard(Source):
    """A drawn picture: colour bars, a moving square, the wall clock, and the sequence number as a code.

    Drawing is in :mod:`pipeline.sources._card`; here is the pacing. The card's own number counts the frames that were
    drawn, from 0, and goes on after a reopen: it equals the camera's ``Frame.sequence`` as long as every drawn frame is
    published (a frame time without a free slot, or missed, is not drawn and takes no number). The clock is the start
    plus the scheduled time of the frame, so it stays right over missed ones; it does not follow later steps of the
    system's clock. Live: what is not read in time is lost. Copies nothing: the card is what the producer writes.
    """

    __test__: ClassVar[bool] = False
    scheme = "testcard"
    Config = TestcardConfig
    example = "testcard://?size=1280x720&fps=30&format=NV12"

    config: TestcardConfig

    def __init__(self, uri: str, config: TestcardConfig) -> None:
        super().__init__(uri, config)
        self._card: Card | None = None
        self._schedule: Schedule | None = None
        self._start_wall_ns = 0
        self._number = 0

    def open(self) -> SourceFormat:
        self._interrupted.clear()
        width, height = self.config.size
        image = ImageSpec.make(pixel_format(self.config.format), width, height)
        self._card = Card(image)
        self._start_wall_ns = time.time_ns()
        self._schedule = Schedule(self.config.fps, self.now_ns())
        return SourceFormat(image, float(self.config.fps), live=True)

    def fill(self, view: ImageView) -> Capture:
        offset_ns = self._wait_for_frame_time()
        assert self._card is not None
        captured_ns, wall_ns = self.now_ns(), time.time_ns()
        self._card.draw(view, self._number, self._start_wall_ns + offset_ns)
        self._number += 1
        return Capture(captured_ns=captured_ns, wall_ns=wall_ns)

    def skip(self) -> None:
        self._wait_for_frame_time()

    def close(self) -> None:
        self._card = self._schedule = None

    def _wait_for_frame_time(self) -> int:
        if self._schedule is None:
            raise SourceError("the test card is closed")
        due_ns, offset_ns = self._schedule.next(self.now_ns())
        self.wait_until(due_ns)
        return offset_ns
