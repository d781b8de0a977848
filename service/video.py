"""One camera's frames as a stream of access units, each made once for all peers: the maker behind a ``Feed``."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

from pipeline.demand import Place
from pipeline.encoders.h264 import CLOCK_HZ, H264
from pipeline.lease import ReadLease
from pipeline.state import CameraState
from service.feed import LiveSource, stale_reason
from service.picture import Picture, Renderer, Variant, View
from service.placeholder import draw_stale

REPEAT_NS = 1_000_000_000  # a picture is sent again this long after it was, while no newer one comes
KEYFRAME_NS = 500_000_000  # requests within this time of a keyframe are answered by one keyframe at its end


@dataclass(frozen=True, slots=True)
class VideoVariant(Variant):
    """A rendition as H.264; ``bitrate_kbps`` None is one that suits the size."""

    bitrate_kbps: int | None = None

    def __str__(self) -> str:
        return Variant.__str__(self) + (f" {self.bitrate_kbps} kbit/s" if self.bitrate_kbps else "")


@dataclass(frozen=True, slots=True)
class AccessUnit(Picture):
    """An encoded picture that needs the one before it, unless it is a ``keyframe``; ``pts`` in 1/90000 s grows."""

    keyframe: bool = False
    pts: int = 0


class VideoRenderer(Renderer):
    """Makes the access units of one variant: of each new frame, of the last one again each second, and on request.

    The first is a keyframe. Results are read in host memory, and claimed there until it is closed.
    """

    def __init__(self, camera: LiveSource, variant: Variant) -> None:
        bitrate = variant.bitrate_kbps if isinstance(variant, VideoVariant) else None
        self._stream = H264().open(bitrate and bitrate * 1000)
        super().__init__(camera, variant, self._stream)
        self._live = camera
        self._last: AccessUnit | None = None
        self._keyframe_ns = self._encoded_ns = -REPEAT_NS
        self._requests = self._answered = 0  # for keyframes
        if variant.view is View.RESULT:
            self._unclaim = camera.claim(Place.HOST)

    def request_keyframe(self) -> None:
        """Whoever asks, and however often: one keyframe for all, at most one each ``KEYFRAME_NS``. Any one thread."""
        self._requests += 1

    def close(self) -> None:
        super().close()
        with self._lock:
            self._stream.close()

    def _render(self) -> AccessUnit | None:
        started_ns, requests = time.monotonic_ns(), self._requests
        asked = requests > self._answered and started_ns - self._keyframe_ns >= KEYFRAME_NS
        self._stream.force_keyframe = asked
        self._stream.pts = _ticks(started_ns)
        picture = super()._render()
        if picture is None:
            if self._last is None or not (asked or started_ns - self._encoded_ns >= REPEAT_NS):
                return None
            picture = self._again(self._last)
        elif picture.placeholder:
            picture = dataclasses.replace(picture, encoded_ns=time.monotonic_ns())
        unit = self._stream.unit
        if unit.keyframe:
            self._answered, self._keyframe_ns = requests, started_ns
        self._encoded_ns = started_ns
        known = {field.name: getattr(picture, field.name) for field in dataclasses.fields(Picture)}
        self._last = AccessUnit(**known, keyframe=unit.keyframe, pts=unit.pts)
        return self._last

    def _frame(self, lease: ReadLease) -> Picture:
        self._stream.pts = _ticks(lease.frame.capture.captured_ns)
        return super()._frame(lease)

    def _again(self, last: AccessUnit) -> Picture:
        live, started_ns = self._live, time.monotonic_ns()
        shown = not last.placeholder and live.state is CameraState.RUNNING  # what has ended stays as it was
        reason = stale_reason(last, live.config.stale_after_s, live.state) if shown else ""
        data = self._stream.again((lambda pixels: draw_stale(pixels, reason)) if reason else None)
        ended_ns = time.monotonic_ns()
        return dataclasses.replace(last, data=data, encode_ns=ended_ns - started_ns, encoded_ns=ended_ns)


def _ticks(time_ns: int) -> int:
    return time_ns * (CLOCK_HZ // 1000) // 1_000_000
