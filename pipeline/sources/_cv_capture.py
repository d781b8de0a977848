"""A cv2.VideoCapture with the rough edges off: it raises what sources raise, and keeps quiet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import cv2
import numpy as np

from kernels.image import Pixels
from pipeline.sources.base import FrameCorrupt, SourceError

Attempt = tuple[int, list[int]]
"""A backend's number (``cv2.CAP_…``), and options to open with: property, value, property, value, …"""

_SILENT = 0  # cv::utils::logging::LOG_LEVEL_SILENT


class CvCapture:
    """An open capture. All calls from one thread, and ``release`` too: releasing under a read crashes OpenCV."""

    def __init__(self, capture: Any) -> None:
        self._capture = capture

    def get(self, prop: int) -> float:
        """A property's value; 0 where there is none."""
        value = float(self._call(self._capture.get, prop))
        return value if np.isfinite(value) else 0.0

    def set(self, prop: int, value: float) -> None:
        """A wish: whether it was granted, the frames will show."""
        self._call(self._capture.set, prop, value)

    def code(self) -> str:
        """The four letters of the source's own format; empty where they are not known."""
        value = int(self.get(cv2.CAP_PROP_FOURCC))
        return value.to_bytes(4, "little").decode("latin-1") if 0 < value < 1 << 32 else ""

    def grab(self) -> bool:
        """Take the next frame off the source; blocks. False: there is none, now or ever."""
        return bool(self._call(self._capture.grab))

    def retrieve(self, target: Pixels | None = None) -> Pixels:
        """The grabbed frame, (H, W) or (H, W, 3): ``target`` itself where OpenCV wrote there, else its own memory.

        It writes into ``target`` where size and type are the frame's, and leaves it alone where they are not.

        Raises:
            FrameCorrupt: there is no picture, or an empty one.
            SourceError: a picture of a type that no slot has.
        """
        try:
            ok, frame = self._capture.retrieve() if target is None else self._capture.retrieve(target)
        except cv2.error as error:
            raise FrameCorrupt("corrupt", f"OpenCV cannot decode a frame: {error.err or error.func}") from None
        if not ok or frame is None or frame.size == 0:
            raise FrameCorrupt("corrupt", "OpenCV delivered an empty frame; a camera may not know the size asked for")
        if frame.ndim == 3 and frame.shape[2] in (1, 4):
            frame = frame[:, :, 0] if frame.shape[2] == 1 else frame[:, :, :3]
        if frame.dtype != np.uint8 or frame.ndim not in (2, 3) or frame.shape[2:] not in ((), (3,)):
            raise SourceError(
                f"OpenCV delivers {frame.dtype} of shape {frame.shape}; needed: uint8, (H, W) or (H, W, 3); "
                "ask the camera for another fourcc"
            )
        pixels: Pixels = frame
        return pixels

    def release(self) -> None:
        """Let the source go; once."""
        self._capture.release()

    def _call(self, function: Callable[..., Any], *values: float) -> Any:
        try:
            return function(*values)
        except cv2.error:  # a backend that raises where the others answer False
            return False


def open_capture(name: int | str, attempts: Iterable[Attempt]) -> CvCapture | None:
    """The first attempt that opens; None where none does. Blocks as long as the backends like."""
    _silence()
    for backend, options in attempts:
        try:
            capture = cv2.VideoCapture(name, backend, options) if options else cv2.VideoCapture(name, backend)
        except (cv2.error, UnicodeError, SystemError):  # what the binding raises for names that it dislikes
            continue
        if capture.isOpened():
            return CvCapture(capture)
        capture.release()
    return None


def same_memory(pixels: Pixels, target: Pixels) -> bool:
    """True if both are the same pixels at the same place."""
    if pixels is target:
        return True
    a, b = pixels.__array_interface__, target.__array_interface__
    return bool(a["data"][0] == b["data"][0] and pixels.shape == target.shape and pixels.strides == target.strides)


def _silence() -> None:
    """Keep OpenCV and its FFmpeg from writing to the process's error output, where URLs would show credentials.

    Whoever sets OPENCV_FFMPEG_LOGLEVEL or OPENCV_LOG_LEVEL wants to see it.
    """
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # read by OpenCV when FFmpeg is used first
    if "OPENCV_LOG_LEVEL" not in os.environ:
        set_level = getattr(cv2, "setLogLevel", None) or cv2.utils.logging.setLogLevel  # as 4.x or as 5 has it
        set_level(_SILENT)
