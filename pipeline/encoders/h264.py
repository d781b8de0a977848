from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from kernels.errors import PinholeError
from kernels.image import Pixels
from pipeline.encoders.base import DEFAULT_QUALITY, PictureEncoder, as_pixels

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

log = logging.getLogger("pinhole.encoders")

CLOCK_HZ = 90_000  # of time stamps, as RTP has them for video (RFC 6184, 5.1)
NOMINAL_FPS = 30  # what a bit rate is shared over; a camera of half the rate takes half the bits
KEYFRAME_FRAMES = 600  # at the latest, for who lost one and does not say so
_LEAST_BPS, _MOST_BPS = 300_000, 8_000_000
_BITS_A_PIXEL = 0.1

_X264 = {"preset": "superfast", "tune": "zerolatency", "profile": "baseline", "forced-idr": "1", "sc_threshold": "0"}
_NVENC = {
    "preset": "p1", "tune": "ull", "profile": "baseline", "zerolatency": "1", "delay": "0", "rc": "cbr",
    "forced-idr": "1",
}  # fmt: skip
# BT.601, limited range, said in the stream.
_COLOUR = {"colorspace": "smpte170m", "color_primaries": "smpte170m", "color_trc": "smpte170m", "color_range": "tv"}


class EncoderMissingError(PinholeError):
    """What encodes video is not installed."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is known of an access unit: ``keyframe``, that decoding can begin with it; ``pts`` in 1/90000 s."""

    keyframe: bool = False
    pts: int = 0


class H264(PictureEncoder):
    """H.264 for live viewers: constrained baseline, no frame waits for another, parameter sets before each keyframe.

    x264 by PyAV; NVENC (``h264_nvenc``) where there is an NVIDIA device and it opens. **NVENC was written by its
    documentation: no machine at hand has one** (the H200 has no encoder), so it was never run.
    """

    name = "h264"
    format = "h264"
    media_type = "video/h264"

    def absence(self) -> str | None:
        """Why nothing can be encoded here, and what helps; None if it can."""
        if importlib.util.find_spec("av") is None:
            return "PyAV is not installed; pip install pinhole-vision[webrtc]"
        return None

    def open(self, bitrate_bps: int | None = None) -> H264Stream:
        """One stream of pictures; ``bitrate_bps`` None takes one that suits its size. Raises EncoderMissingError."""
        if (absence := self.absence()) is not None:
            raise EncoderMissingError(absence)
        return H264Stream(bitrate_bps)


class H264Stream:
    """Pictures in, access units (Annex B) out, one for one. One thread at a time; encoding blocks for milliseconds.

    A new size or a change between grey and colour is no event to who decodes: it begins with a keyframe. Sides are
    made even by repeating the last row and column. ``unit`` says what the last one was.
    """

    media_type = H264.media_type
    takes_16_bit = False

    def __init__(self, bitrate_bps: int | None) -> None:
        self.name = H264.name
        self.unit = Unit()
        self.pts = 0  # of the next picture; made to grow
        self.force_keyframe = False  # the next one is one
        self._bitrate_bps = bitrate_bps
        self._codec: VideoCodecContext | None = None
        self._planes = _Planes()  # of the last picture
        self._drawn = _Planes()
        self._nvenc = os.path.exists("/dev/nvidia0")

    def encode(self, pixels: npt.NDArray[Any], quality: int = DEFAULT_QUALITY) -> bytes:
        """The picture's access unit. ``pixels``: (H, W) grey, (H, W, 3) BGR or (H, W, 4) BGRA uint8; not kept.

        Raises:
            InputError: another shape, type or size.
        """
        self._planes.fill(as_pixels(pixels))
        return self._encode(self._planes.array)

    def again(self, draw: Callable[[Pixels], None] | None = None) -> bytes:
        """The last picture once more, for who lost it; ``draw`` may write on a copy of it, (H, W, 3) BGR."""
        if draw is None:
            return self._encode(self._planes.array)
        picture = np.asarray(cv2.cvtColor(self._planes.array, cv2.COLOR_YUV2BGR_I420), np.uint8)
        draw(picture)
        self._drawn.fill(picture)
        return self._encode(self._drawn.array)

    @property
    def empty(self) -> bool:
        """True before the first picture."""
        return self._planes.array.size == 0

    def _encode(self, planes: Pixels) -> bytes:
        from av.error import FFmpegError

        height, width = planes.shape[0] * 2 // 3, planes.shape[1]
        codec = self._codec
        if codec is None or (codec.width, codec.height) != (width, height):
            codec = self._codec = self._open(width, height)
        try:
            return self._with(codec, planes)
        except FFmpegError as error:
            self._codec = None  # the next picture is tried with a new one
            if self.name == H264.name:
                raise
            log.warning("NVENC does not work (%s); x264 encodes instead", error)
            self._nvenc = False
            codec = self._codec = self._open(width, height)
            return self._with(codec, planes)

    def _with(self, codec: VideoCodecContext, planes: Pixels) -> bytes:
        from av import VideoFrame
        from av.video.frame import PictureType

        frame = VideoFrame.from_ndarray(planes, "yuv420p")
        frame.pts = self.pts = max(self.pts, self.unit.pts + 1)
        frame.time_base = codec.time_base
        frame.pict_type = PictureType.I if self.force_keyframe else PictureType.NONE
        packets = codec.encode(frame)
        self.force_keyframe = False
        self.unit = Unit(any(packet.is_keyframe for packet in packets), self.pts)
        return b"".join(bytes(packet) for packet in packets)

    def _open(self, width: int, height: int) -> VideoCodecContext:
        from fractions import Fraction

        from av import CodecContext
        from av.error import FFmpegError

        bitrate = self._bitrate_bps or min(
            _MOST_BPS, max(_LEAST_BPS, int(_BITS_A_PIXEL * NOMINAL_FPS * width * height))
        )
        for name, options in (("h264_nvenc", _NVENC), ("libx264", _X264)):
            if name == "h264_nvenc" and not self._nvenc:
                continue
            try:
                codec = cast("VideoCodecContext", CodecContext.create(name, "w"))
                codec.width, codec.height, codec.pix_fmt = width, height, "yuv420p"
                codec.time_base, codec.framerate = Fraction(1, CLOCK_HZ), Fraction(NOMINAL_FPS)
                codec.bit_rate = bitrate
                codec.gop_size, codec.max_b_frames = KEYFRAME_FRAMES, 0
                codec.thread_count = min(2, len(os.sched_getaffinity(0)))
                rate = {"maxrate": str(bitrate), "bufsize": str(bitrate // 2)}  # half a second's worth for a keyframe
                codec.options = {**options, **_COLOUR, **rate}
                codec.open()
            except (FFmpegError, ValueError) as error:
                if name == "libx264":
                    raise
                log.info("NVENC is not used: %s", error)
                self._nvenc = False
            else:
                self.name = H264.name if name == "libx264" else name
                return codec
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Let the encoder's memory and threads go; idempotent."""
        self._codec = None


class _Planes:
    """A picture's planes as the encoder takes them, in memory that is kept: BT.601 limited range, I420."""

    def __init__(self) -> None:
        self.array: Pixels = np.empty((0, 0), np.uint8)  # (H * 3 / 2, W), plane below plane; both sides even
        self._half: Pixels = self.array
        self._chroma: Pixels = self.array

    def fill(self, picture: Pixels) -> None:
        """(H, W) grey, (H, W, 3) BGR or (H, W, 4) BGRA. Chroma is that of the mean of four pixels."""
        height, width = picture.shape[:2]
        if height % 2 or width % 2:
            padded = cv2.copyMakeBorder(picture, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
            picture = np.asarray(padded, np.uint8)
            height, width = picture.shape[:2]
        if self.array.shape != (height * 3 // 2, width):
            self.array = np.empty((height * 3 // 2, width), np.uint8)
        if picture.ndim == 2:
            cv2.LUT(picture, _LIMITED, self.array[:height])
            self.array[height:] = 128
            return
        if picture.shape[2] == 4:
            picture = np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGRA2BGR), np.uint8)
        cv2.cvtColor(picture, cv2.COLOR_BGR2YUV_I420, self.array)  # its chroma is the upper left pixel's alone
        shape = (height // 2, width // 2)
        if self._half.shape[:2] != shape:
            self._half, self._chroma = np.empty((*shape, 3), np.uint8), np.empty((*shape, 2), np.uint8)
        cv2.resize(picture, shape[::-1], self._half, interpolation=cv2.INTER_AREA)
        cv2.transform(self._half, _CHROMA, self._chroma)
        below = self.array[height:].reshape(2, *shape)
        cv2.split(self._chroma, [below[0], below[1]])


_LIMITED = np.array([(v * 219 + 127) // 255 + 16 for v in range(256)], np.uint8)
# ITU-R BT.601-7, 2.5: (B, G, R, 1) to Cb and Cr, codes 16 to 240.
_CHROMA = np.array([
    [112, -112 * 0.587 / 0.886, -112 * 0.299 / 0.886, 128 * 255],
    [-112 * 0.114 / 0.701, -112 * 0.587 / 0.701, 112, 128 * 255],
], np.float32) / np.float32(255)  # fmt: skip
