"""What ustreamer's users' tools ask for: headers in each part, headers ahead of their picture, and its ``/state``.

Names and meanings as in pikvm/ustreamer, ``src/ustreamer/http/server.c``. Its times are of the monotonic clock, in
seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from pipeline.encoders.base import DEFAULT_QUALITY
from pipeline.state import CameraState
from pipeline.stats import CameraStatistics
from service.live import Viewer
from service.mjpeg import DELIMITER, PARTS, MultipartFraming, part_head
from service.picture import Picture
from service.queries import StreamQuery
from service.tally import LiveStatistics, ViewerStatistics


class MjpegQuery(StreamQuery):
    """Parameters of a Motion JPEG stream: those of every stream, and ustreamer's."""

    extra_headers: bool = Field(default=False, description="ustreamer's `X-UStreamer-…` in each part.")
    advance_headers: bool = Field(
        default=False,
        description="As ustreamer's: each part's headers right after the picture before, so without its length and "
        "without frame headers. Not needed for browsers: the delimiter is sent at once.",
    )
    dual_final_frames: bool = Field(default=False, description="As ustreamer's; the last frame is repeated anyway.")
    key: str = Field(default="0", max_length=64, description="Names this viewer in `/state`.")

    @property
    def framing(self) -> MultipartFraming:
        """How this stream's parts are written."""
        if self.advance_headers:
            return _ADVANCE
        return _EXTRA if self.extra_headers else PARTS


class ExtraParts:
    """Each part with ustreamer's headers, which differ for each viewer."""

    shared = False
    answered = False
    opening = DELIMITER

    def frame(self, viewer: Viewer, picture: Picture, stale: str, now_ns: int) -> Sequence[bytes]:
        real = not picture.placeholder
        begun_ns = picture.encoded_ns - picture.encode_ns
        times_ns = {
            "Grab-Time": picture.captured_ns, "Encode-Begin-Time": begun_ns, "Encode-End-Time": picture.encoded_ns,
            "Expose-Begin-Time": picture.encoded_ns, "Expose-Cmp-Time": picture.encoded_ns,
            "Expose-End-Time": picture.encoded_ns, "Send-Time": now_ns,
            "Latency": now_ns - picture.captured_ns if real else 0,
        }  # fmt: skip
        fields = [
            ("X-UStreamer-Online", "true" if real and not stale else "false"),
            ("X-UStreamer-Dropped", str(viewer.missed_before(picture))),
            ("X-UStreamer-Width", str(picture.width)),
            ("X-UStreamer-Height", str(picture.height)),
            ("X-UStreamer-Client-FPS", str(round(viewer.frames_per_s or 0))),
            *((f"X-UStreamer-{name}", f"{value_ns / 1e9:.6f}") for name, value_ns in times_ns.items()),
        ]
        return (part_head(picture, stale, now_ns, fields), picture.data, b"\r\n" + DELIMITER)


class AdvanceParts:
    """The headers of each part before its picture is known."""

    shared = True
    answered = False

    @property
    def opening(self) -> bytes:
        return DELIMITER + _headers_ahead()

    def frame(self, viewer: Viewer, picture: Picture, stale: str, now_ns: int) -> Sequence[bytes]:
        return (picture.data, b"\r\n" + DELIMITER + _headers_ahead())


_EXTRA, _ADVANCE = ExtraParts(), AdvanceParts()


def _headers_ahead() -> bytes:
    return f"Content-Type: image/jpeg\r\nX-Timestamp: {time.time():.6f}\r\n\r\n".encode()


def state_json(statistics: CameraStatistics, live: LiveStatistics) -> dict[str, Any]:
    """ustreamer's ``/state`` of one camera."""
    source = statistics.source
    image = statistics.result or (None if source is None else source.image)
    streams = [viewer for viewer in live.connections if viewer.kind == "mjpeg"]
    hardware = any(name != "jpeg_cpu" for name in live.encoded)
    fps = round(statistics.fps or 0)
    return {
        "ok": True,
        "result": {
            "instance_id": f"pinhole-{os.getpid()}-{statistics.name}",
            "encoder": {"type": "HW" if hardware else "CPU", "quality": DEFAULT_QUALITY},
            "source": {
                "resolution": {"width": image.width if image else 0, "height": image.height if image else 0},
                "online": statistics.state is CameraState.RUNNING,
                "desired_fps": round(source.fps or 0) if source is not None else 0,
                "captured_fps": round(statistics.capture_fps or 0),
            },
            "stream": {
                "queued_fps": fps if streams else 0,
                "clients": len(streams),
                "clients_stat": {viewer.name.replace(" ", "-"): _client(viewer) for viewer in streams},
            },
        },
    }


def _client(viewer: ViewerStatistics) -> dict[str, Any]:
    asked = {"extra_headers": False, "advance_headers": False, "dual_final_frames": False, "key": "0"}
    return {"fps": round(viewer.frames_per_s or 0), **asked, "zero_data": False, **viewer.asked}
