from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Literal

import cv2
import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from kernels.errors import InputError
from kernels.formats import BGR8, GRAY8, PixelFormat
from kernels.image import ImageSpec, ImageView, Pixels, check_size
from pipeline.frame import Capture
from pipeline.sources._capture_problem import device_path, device_problem, file_problem, is_device, name_problem
from pipeline.sources._cv_capture import Attempt, CvCapture, open_capture, same_memory
from pipeline.sources._fields import RATE_ALLOWED, SIZE_ALLOWED, Flag, parse_rate, parse_size
from pipeline.sources._files import path_problem
from pipeline.sources._pace import MediaClock, Playback
from pipeline.sources._uri import parse_uri
from pipeline.sources.base import (
    FormatChanged,
    FrameCorrupt,
    Source,
    SourceConfig,
    SourceEnded,
    SourceError,
    SourceFormat,
)

log = logging.getLogger("pinhole.source")

# Both below the limits that a camera has for its source: OpenCV should give up before the thread is given up.
OPEN_TIMEOUT_S = 8.0
READ_TIMEOUT_S = 2.5
# One that the driver fills while OpenCV holds the other; with a single one many drivers skip every second frame.
BUFFERS = 2
WHOLE = 0.95  # of the frames that a recording elsewhere announces: fewer, and it broke off

_NOMINAL_FPS = 25.0
_MAX_FPS = 1000.0
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_GREY_CODES = ("GREY", "Y800", "Y8  ")
_BACKENDS = {
    "ffmpeg": cv2.CAP_FFMPEG,
    "v4l2": cv2.CAP_V4L2,
    "gstreamer": cv2.CAP_GSTREAMER,
    "images": cv2.CAP_IMAGES,
}


class OpencvConfig(SourceConfig):
    name: str = Field(default="", description="Anything else that cv2.VideoCapture opens, percent-encoded: a URL.")
    backend: Literal["auto", "ffmpeg", "v4l2", "gstreamer", "images"] = Field(
        default="auto", description="Which part of OpenCV is to open it."
    )
    size: Annotated[
        tuple[int, int] | None,
        BeforeValidator(parse_size),
        WithJsonSchema({"type": "string", "x-unit": "px", "x-allowed": SIZE_ALLOWED}),
    ] = Field(default=None, description="Width x height to ask a camera for.")
    fps: Annotated[
        Fraction | None,
        BeforeValidator(parse_rate),
        WithJsonSchema({"type": "string", "x-unit": "1/s", "x-allowed": RATE_ALLOWED}),
    ] = Field(default=None, description="Frames per second to ask a camera for.")
    fourcc: str | None = Field(
        default=None,
        description="Four letters of the format to ask a camera for, often MJPG.",
        json_schema_extra={"x-allowed": "four letters or digits, such as MJPG or YUYV"},
    )
    loop: Flag = Field(default=False, description="Begin a recording again when it ends.")

    @field_validator("size")
    @classmethod
    def _is_size(cls, size: tuple[int, int] | None) -> tuple[int, int] | None:
        if size is not None:
            try:
                check_size(*size)
            except InputError:
                raise ValueError("is not a size") from None
        return size

    @field_validator("fps")
    @classmethod
    def _is_rate(cls, fps: Fraction | None) -> Fraction | None:
        if fps is not None and not 0 < fps <= _MAX_FPS:
            raise ValueError("is out of range")
        return fps

    @field_validator("fourcc")
    @classmethod
    def _is_code(cls, code: str | None) -> str | None:
        if code is not None and not re.fullmatch("[A-Za-z0-9]{4}", code):
            raise ValueError("is not a format's code")
        return code


@dataclass(frozen=True, slots=True)
class _Grabbed:
    """A frame that was taken off the source, and when; ``pixels`` once they are out of OpenCV."""

    captured_ns: int
    wall_ns: int
    pts_s: float | None
    pixels: Pixels | None = None


class Opencv(Source):
    """Whatever OpenCV's VideoCapture opens: a camera by number, a device or file by path, a URL.

    | URI | opens |
    |---|---|
    | ``opencv://0`` | the first camera (/dev/video0) |
    | ``opencv:///dev/video2``, ``opencv:///path/clip.mp4`` | a device, a recording |
    | ``opencv://?name=rtsp%3A%2F%2Fuser%3Apassword%40camera%2Fstream`` | what cv2.VideoCapture makes of the name |

    Frames are BGR8; GRAY8 where the camera's own format is grey. OpenCV keeps each frame in a buffer of its own and
    copies it into the slot: one copy, counted; a second one where it does not take the slot (another type, the first
    frame after a change of the format). Other formats, exact YUV planes and damage in files are ``file://``'s.

    Cameras and streams without an end are live. A recording is not: nothing of it is lost, it is paced by the stamps
    that OpenCV gives it (``CAP_PROP_POS_MSEC``), and it ends or, with ``loop``, begins again. OpenCV turns recordings
    upright by their metadata. Captures are stamped with the host's clock on arrival: what OpenCV says of a live
    frame's time is of no stated clock.

    What is asked of a camera (``size``, ``fps``, ``fourcc``) is a wish; what comes of it is in the log and the state.
    OpenCV cannot be interrupted: its FFmpeg gives up after ``OPEN_TIMEOUT_S`` and ``READ_TIMEOUT_S``, other
    backends when they like; the camera goes on without them. The capture is released where it was opened, in the
    capture thread.
    """

    scheme = "opencv"
    Config = OpencvConfig
    example = "opencv://0?size=1280x720&fps=30&fourcc=MJPG"
    location = "device"

    config: OpencvConfig

    def __init__(self, uri: str, config: OpencvConfig) -> None:
        super().__init__(uri, config)
        parts = parse_uri(uri)
        self.number = int(parts.authority) if parts.authority else None
        self.path = device_path(self.number) if self.number is not None else parts.local_path() if parts.path else None
        self._is_camera = self._names_camera()
        self._capture: CvCapture | None = None
        self._live = True
        self._image: ImageSpec | None = None
        self._fps: float | None = None
        self._grabbed: _Grabbed | None = None
        self._position_ns = 0
        self._frames_in_round = 0
        self._clock = MediaClock(0)
        self._playback = Playback()

    def _names_camera(self) -> bool:
        return self.number is not None or (self.path is not None and is_device(self.path))

    def check(self, field: str = "uri") -> None:
        if self.path is None or self._is_camera or ("%" in self.path.name and not self.path.exists()):
            return  # a camera that is away now may come, and OpenCV alone knows names and patterns
        if (problem := path_problem(self.path)) is not None:
            raise InputError(field, problem)

    def open(self) -> SourceFormat:
        self.close()
        self._interrupted.clear()
        self._is_camera = self._names_camera()
        capture = self._start()
        fps = capture.get(cv2.CAP_PROP_FPS)
        self._fps = fps if 0 < fps <= _MAX_FPS else None
        self._clock, self._playback = MediaClock(int(1e9 / (self._fps or _NOMINAL_FPS))), Playback()
        self._image = self._first_image(capture)
        self._say_what_was_negotiated(capture)
        return self._format()

    def fill(self, view: ImageView) -> Capture:
        grabbed = self._grabbed if self._grabbed is not None else self._grab()
        self._grabbed = grabbed
        if not self._live:
            self.wait_until(self._playback.due(self._position_ns, self.now_ns()))
            grabbed = replace(grabbed, captured_ns=self.now_ns(), wall_ns=time.time_ns())
        self._grabbed = None  # OpenCV gives a frame once
        assert self._capture is not None
        target = view.plane(0)
        pixels = grabbed.pixels if grabbed.pixels is not None else self._capture.retrieve(target)
        copies = 1
        if not same_memory(pixels, target):
            spec, image = view.spec, _image_of(pixels)
            if (spec.format, spec.width, spec.height) != (image.format, image.width, image.height):
                self._image, self._grabbed = image, replace(grabbed, pixels=pixels)
                raise FormatChanged(self._format())
            np.copyto(target, pixels)
            copies = 2
        return Capture(grabbed.captured_ns, grabbed.wall_ns, copied_bytes=copies * target.size, pts_s=grabbed.pts_s)

    def skip(self) -> None:
        """Take a live frame off the source, so that the driver's queue never fills; a recording waits."""
        if self._live:
            self._grab()

    def close(self) -> None:
        self._grabbed = None
        self._release()

    def _release(self) -> None:
        if (capture := self._capture) is not None:
            self._capture = None
            capture.release()

    def _format(self) -> SourceFormat:
        assert self._image is not None
        return SourceFormat(self._image, self._fps, self._live)

    # ---- opening

    def _start(self) -> CvCapture:
        """Begin at the beginning: a new capture, its wishes set. Raises SourceError."""
        self._release()
        began = time.monotonic()
        capture = open_capture(self._name(), self._attempts())
        if capture is None:
            raise SourceError(self._why_not(time.monotonic() - began))
        self._capture = capture
        if self._interrupted.is_set():
            raise SourceError("interrupted")
        self._live = self._is_camera or (not self._is_file() and capture.get(cv2.CAP_PROP_FRAME_COUNT) <= 0)
        self._frames_in_round = 0
        if self._is_camera:
            self._wish(capture)
        if self._live:
            capture.set(cv2.CAP_PROP_BUFFERSIZE, BUFFERS)
        else:
            capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 1)
        return capture

    def _name(self) -> int | str:
        if self.number is not None:
            return self.number
        return os.fspath(self.path) if self.path is not None else self.config.name

    def _attempts(self) -> list[Attempt]:
        """Backends to try, with options. Only FFmpeg knows the time limits; others refuse to open with them."""
        limits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, int(OPEN_TIMEOUT_S * 1e3)]
        limits += [cv2.CAP_PROP_READ_TIMEOUT_MSEC, int(READ_TIMEOUT_S * 1e3)]
        if self.config.backend != "auto":
            backend = _BACKENDS[self.config.backend]
            return [(backend, limits if backend == cv2.CAP_FFMPEG else [])]
        if self._is_camera:
            return [(cv2.CAP_V4L2, []), (cv2.CAP_ANY, [])]
        others: list[Attempt] = [] if _URL.match(self.config.name) else [(cv2.CAP_ANY, [])]
        return [(cv2.CAP_FFMPEG, limits), *others]

    def _why_not(self, took_s: float) -> str:
        if self.path is None:
            return name_problem(self.config.name, took_s, OPEN_TIMEOUT_S)
        return device_problem(self.path) if self._is_camera else file_problem(self.path)

    def _is_file(self) -> bool:
        return self.path is not None and not self._is_camera

    def _wish(self, capture: CvCapture) -> None:
        """Ask the camera for what the settings say; the format first, as the others depend on it."""
        if (code := self.config.fourcc) is not None:
            capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*code))
        if (size := self.config.size) is not None:
            capture.set(cv2.CAP_PROP_FRAME_WIDTH, size[0])
            capture.set(cv2.CAP_PROP_FRAME_HEIGHT, size[1])
        if (fps := self.config.fps) is not None:
            capture.set(cv2.CAP_PROP_FPS, float(fps))
        if capture.code() in _GREY_CODES:
            capture.set(cv2.CAP_PROP_CONVERT_RGB, 0)

    def _first_image(self, capture: CvCapture) -> ImageSpec:
        """What the first frame is; where that one is no use, what the capture says that it delivers.

        A recording's first frame is kept. A live one's is not, as it will be old when there is a slot for it.
        """
        grabbed = self._grab()
        try:
            pixels = capture.retrieve()
        except FrameCorrupt:
            width, height = (int(capture.get(p)) for p in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
            return _checked(BGR8, width, height)
        if not self._live:
            self._grabbed = replace(grabbed, pixels=pixels)
        return _image_of(pixels)

    def _say_what_was_negotiated(self, capture: CvCapture) -> None:
        size, fps, code = self.config.size, self.config.fps, self.config.fourcc
        image = self._image
        assert image is not None
        if not self._is_camera or (size is None and fps is None and code is None):
            return
        as_asked = (
            size in (None, (image.width, image.height))
            and (fps is None or self._fps is None or abs(self._fps - float(fps)) < 0.5)
            and (code is None or capture.code() in (code, ""))
        )
        asked = f"{f'{size[0]}x{size[1]}' if size else 'any size'}, {fps or 'any'} fps, {code or 'any format'}"
        got = f"{image.describe()}, {self._fps or 'unknown'} fps, {capture.code() or 'unknown format'}"
        log.log(logging.INFO if as_asked else logging.WARNING, "%s: asked for %s; delivers %s", self.path, asked, got)

    # ---- reading

    def _grab(self) -> _Grabbed:
        """Take the next frame off the source; blocks. Raises SourceError, SourceEnded."""
        if self._capture is None:
            raise SourceError("the capture is closed")
        while not self._capture.grab():
            if self._interrupted.is_set():
                raise SourceError("interrupted")
            self._begin_again(self._capture)
        captured_ns, wall_ns = self.now_ns(), time.time_ns()
        if self._interrupted.is_set():
            raise SourceError("interrupted")
        self._frames_in_round += 1
        if self._live:
            return _Grabbed(captured_ns, wall_ns, None)
        pts_s = self._capture.get(cv2.CAP_PROP_POS_MSEC) / 1e3
        self._position_ns = self._clock.place(int(pts_s * 1e9))
        return _Grabbed(captured_ns, wall_ns, pts_s)

    def _begin_again(self, capture: CvCapture) -> None:
        """OpenCV has no frame: begin a recording's next round, or say what that means. SourceError, SourceEnded."""
        if self._live:
            raise SourceError("no frame came: the camera or stream is gone, or was silent for too long")
        if not self._frames_in_round:
            raise SourceError("it opened, but holds no picture that OpenCV can decode")
        expected = capture.get(cv2.CAP_PROP_FRAME_COUNT)
        if not self._is_file() and self._frames_in_round < WHOLE * expected:
            raise SourceError(f"it broke off after {self._frames_in_round} of {expected:.0f} frames")
        if not self.config.loop:
            raise SourceEnded("the recording is over")
        self._start()
        self._clock.restart()


def _image_of(pixels: Pixels) -> ImageSpec:
    return _checked(GRAY8 if pixels.ndim == 2 else BGR8, pixels.shape[1], pixels.shape[0])


def _checked(format: PixelFormat, width: int, height: int) -> ImageSpec:
    try:
        return ImageSpec.make(format, width, height)
    except InputError as error:
        raise SourceError(f"OpenCV delivers pictures that no slot can hold: {error.reason} ({error.allowed})") from None
