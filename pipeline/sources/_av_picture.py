"""From a decoded PyAV frame to the planes of a slot, in the format and colours that the stream has.

| FFmpeg's format | slot | how |
|---|---|---|
| yuv420p, yuvj420p | I420 | planes copied |
| nv12, yuyv422, gray, bgr24 | NV12, YUYV, GRAY8, BGR8 | planes copied |
| gray with limited range | I420 | luma copied, chroma neutral: GRAY8 has no range |
| any other YUV | I420 | swscale in the same matrix and range, then copied |
| RGB, palettes, and matrices that a slot cannot name (SMPTE 240M, BT.2020) | BGR8 | swscale, then copied |

Alpha is dropped. What the stream leaves open is what video without a label means: limited range (full for yuvj
formats), BT.601 below 720 lines and BT.709 from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import InputError
from kernels.formats import BGR8, GRAY8, I420, NV12, YUYV, Matrix, PixelFormat, Range, default_matrix
from kernels.image import ImageSpec, ImageView, Pixels, check_size
from pipeline.sources._orientation import Orientation, orientation_of_matrix, orientation_of_turn
from pipeline.sources.base import SourceError

_DIRECT = {"yuv420p": I420, "yuvj420p": I420, "nv12": NV12, "yuyv422": YUYV}

# AVColorSpace (libavutil/pixfmt.h): those that a slot can name, those left open, those only swscale knows (by its own
# SWS_CS numbers, which are the same).
_RGB = 0
_MATRICES = {1: Matrix.BT709, 4: Matrix.BT601, 5: Matrix.BT601, 6: Matrix.BT601}
_OPEN_MATRICES = (2, 3)
_SWSCALE_MATRICES = (7, 9)
_SWSCALE_NUMBER = {Matrix.BT709: 1, Matrix.BT601: 5}
_FULL_RANGE, _LIMITED_RANGE = 2, 1


@dataclass(frozen=True, slots=True)
class Damage:
    """Where a frame should be and is not. ``pts_ns`` is its stamp if it is known."""

    reason: str
    pts_ns: int | None = None


def pts_ns(frame: Any) -> int | None:
    """A frame's stamp in nanoseconds, None where it has none."""
    if frame.pts is None or not frame.time_base:
        return None
    return int(frame.pts * frame.time_base * 1_000_000_000)


@dataclass(frozen=True, slots=True)
class Conversion:
    """What swscale does first: to which format, and the names of PyAV's Colorspace and ColorRanges (from, to)."""

    format: str
    matrix: str
    source_range: str
    result_range: str


@dataclass(frozen=True, slots=True)
class AvPicture:
    """How frames with the same ``key`` become slots.

    ``image`` is the upright picture, packed; ``stored`` the same as the frame has it, before it is turned;
    ``conversion`` is None where the planes are copied as they are.
    """

    key: tuple[object, ...]
    image: ImageSpec
    stored: ImageSpec
    orientation: Orientation
    conversion: Conversion | None

    def fits(self, slot: ImageSpec) -> bool:
        """True if a slot means its bytes as ``image`` does; strides and padding are its own."""
        image = self.image
        same = (slot.format, slot.width, slot.height) == (image.format, image.width, image.height)
        return same and (not image.format.is_yuv or (slot.matrix, slot.range) == (image.matrix, image.range))

    def write(self, frame: Any, view: ImageView) -> int:
        """Write all pixels of an ``av.VideoFrame`` into a slot that ``fits``; returns the bytes copied."""
        copied = self.image.pixel_bytes
        if (to := self.conversion) is not None:
            frame = frame.reformat(
                format=to.format,
                src_colorspace=to.matrix,
                dst_colorspace=to.matrix,
                src_color_range=to.source_range,
                dst_color_range=to.result_range,
            )
            copied *= 2
        planes = view.planes
        if self.image.format is I420 and frame.format.name == "gray":
            planes[1][...] = planes[2][...] = 128
            planes = planes[:1]
        for index, (plane, source) in enumerate(zip(planes, frame.planes, strict=True)):
            np.copyto(plane, self.orientation.upright(_plane_array(source, self.stored, index)))
        return copied


def picture_key(frame: Any) -> tuple[object, ...]:
    """What of a frame decides how it becomes a slot; cheap, for each frame.

    The turn in degrees only: PyAV's ``side_data`` and its frame refer to each other, so that each frame that was
    asked for it would keep its pixels until the garbage collector comes by.
    """
    return (
        frame.format.name, frame.width, frame.height, int(frame.colorspace), int(frame.color_range),
        int(getattr(frame, "rotation", 0)),
    )  # fmt: skip


def describe_frame(frame: Any) -> AvPicture:
    """How frames like this one become slots.

    Raises:
        SourceError: a size, colour matrix or orientation that no slot can have.
    """
    width, height = frame.width, frame.height
    orientation = _orientation(frame)
    format, convert_to = _formats(frame, orientation)
    full = int(frame.color_range) == _FULL_RANGE or frame.format.name.startswith("yuvj")
    try:
        check_size(width, height)
    except InputError as error:
        raise SourceError(f"a slot cannot hold the stream's picture: {error.reason} ({error.allowed})") from None
    matrix = _MATRICES.get(int(frame.colorspace)) or default_matrix(height)
    value_range = Range.FULL if full and format.is_yuv else Range.LIMITED
    stored = ImageSpec.make(format, width, height, matrix=matrix, range=value_range)
    image = stored
    if orientation.transpose:
        image = ImageSpec.make(format, height, width, matrix=matrix, range=value_range)
    conversion = None
    if convert_to is not None:
        number = int(frame.colorspace) if int(frame.colorspace) in _SWSCALE_MATRICES else _SWSCALE_NUMBER[matrix]
        source_is_full = full or (convert_to == "gray" and format is GRAY8)
        conversion = _conversion(convert_to, number, source_is_full, source_is_full or format is BGR8)
    return AvPicture(picture_key(frame), image, stored, orientation, conversion)


def _conversion(format: str, matrix: int, source_is_full: bool, result_is_full: bool) -> Conversion:
    from av.video.reformatter import ColorRange, Colorspace

    try:
        known_matrix = Colorspace(matrix)
    except ValueError:
        raise SourceError(f"this PyAV cannot convert colour matrix {matrix}; install a newer one (av)") from None
    full, limited = ColorRange(_FULL_RANGE).name, ColorRange(_LIMITED_RANGE).name
    return Conversion(
        format, known_matrix.name, full if source_is_full else limited, full if result_is_full else limited
    )


def _formats(frame: Any, orientation: Orientation) -> tuple[PixelFormat, str | None]:
    """The slot's format, and what swscale has to make first."""
    name, matrix = frame.format.name, int(frame.colorspace)
    if name.startswith(("gray", "ya", "mono")):
        # FFmpeg itself takes grey without a label as full range.
        format = I420 if int(frame.color_range) == _LIMITED_RANGE else GRAY8
        return format, None if name == "gray" else "gray"
    if name == "bgr24":
        return BGR8, None
    if frame.format.is_rgb or name == "pal8" or matrix == _RGB or matrix in _SWSCALE_MATRICES:
        return BGR8, "bgr24"
    if matrix not in _MATRICES and matrix not in _OPEN_MATRICES:
        raise SourceError(f"the stream's colour matrix (AVColorSpace {matrix}) is not supported; convert it to BT.709")
    direct = _DIRECT.get(name)
    turned_pairs = direct is YUYV and (orientation.transpose or orientation.reverse_x)  # two pixels share a group
    return (I420, "yuv420p") if direct is None or turned_pairs else (direct, None)


def _turn(frame: Any) -> bytes | int:
    """The display matrix of a frame, or by how many degrees counterclockwise to turn it; 0 where nothing is said."""
    try:
        return bytes(frame.side_data["DISPLAYMATRIX"])
    except KeyError:
        return 0
    except ValueError:  # other side data, for which this PyAV has no name
        return int(getattr(frame, "rotation", 0))


def _orientation(frame: Any) -> Orientation:
    turn = _turn(frame)
    orientation = orientation_of_matrix(turn) if isinstance(turn, bytes) else orientation_of_turn(turn)
    if orientation is None:
        raise SourceError("the video says to show it turned by other than quarter turns; encode it upright")
    return orientation


def _plane_array(plane: Any, spec: ImageSpec, index: int) -> Pixels:
    """A plane of a frame as (rows, groups[, bytes]), not copied; a negative stride means bottom-up."""
    shape = spec.plane_shape(index)
    group_bytes = spec.format.planes[index].group_bytes
    stride = plane.line_size
    strides = (abs(stride), group_bytes, 1)[: len(shape)]
    array: Pixels = np.ndarray(shape, np.uint8, plane, 0, strides)
    return array[::-1] if stride < 0 else array
