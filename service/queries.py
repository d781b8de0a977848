"""What a client may ask of a live picture, over every way it comes, and which rendition that is."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pipeline.encoders import all_encoders
from pipeline.encoders.base import DEFAULT_QUALITY
from service.inputs import QueryModel
from service.picture import Variant, View
from service.video import VideoVariant

# Few, so that many viewers share a rendition: the page, too, asks for the next larger one of these and scales.
WIDTHS_PX = (160, 320, 480, 640, 960, 1280, 1920, 2560, 3840)


# Of these, too, so that peers share an encoder.
BITRATES_KBPS = (300, 500, 1000, 2000, 4000, 8000)


def _offered(width: int) -> int:
    if width not in WIDTHS_PX:
        raise ValueError("it is not one of the widths that are made")
    return width


def _offered_rate(rate: int) -> int:
    if rate not in BITRATES_KBPS:
        raise ValueError("it is not one of the bit rates that are made")
    return rate


class LiveQuery(QueryModel):
    """Parameters of every live picture."""

    view: View = Field(default=View.RESULT, description="What the chain made, or what the camera wrote.")
    quality: int = Field(default=DEFAULT_QUALITY, ge=1, le=100, description="JPEG quality.")
    width: Annotated[int, AfterValidator(_offered)] | None = Field(
        default=None,
        description="Scale down to this many pixels; never up.",
        json_schema_extra={"enum": list(WIDTHS_PX)},
    )

    def variant(self, camera: str, format: str = "jpg") -> Variant:
        """The rendition of ``camera`` that this asks for. Raises UnknownNameError for a format that is not known."""
        return Variant.make(camera, view=self.view, format=format, quality=self.quality, width=self.width)


class StreamQuery(LiveQuery):
    """Parameters of a stream."""

    fps: float | None = Field(default=None, ge=0.1, le=1000, description="At most this many frames a second.")


class SnapshotQuery(LiveQuery):
    """Parameters of a single picture."""

    format: str = Field(
        default="jpg",
        description="npy with view=source is the packed native planes.",
        json_schema_extra={"enum": [encoder.format for encoder in all_encoders().values()]},
    )


class VideoQuery(QueryModel):
    """Parameters of a live picture as video."""

    view: View = Field(default=View.RESULT, description="What the chain made, or what the camera wrote.")
    width: Annotated[int, AfterValidator(_offered)] | None = Field(
        default=None,
        description="Scale down to this many pixels; never up.",
        json_schema_extra={"enum": list(WIDTHS_PX)},
    )
    bitrate: Annotated[int, AfterValidator(_offered_rate)] | None = Field(
        default=None,
        description="kbit/s at 30 frames a second; left out: one that suits the size.",
        json_schema_extra={"enum": list(BITRATES_KBPS)},
    )

    def variant(self, camera: str) -> VideoVariant:
        """The rendition of ``camera`` that this asks for."""
        return VideoVariant(camera, self.view, "h264", 0, self.width, self.bitrate)
