"""Where pixels lie: a specification of size, planes and strides, and a view that adds addresses.

Neither owns memory; owners are in :mod:`kernels.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.errors import InputError
from kernels.formats import Matrix, PixelFormat, Range, default_matrix

MAX_SIDE_PX = 16384
PLANE_ALIGNMENT = 128  # bytes: a line of the link and of the GPU's caches

Pixels = npt.NDArray[np.uint8]
# Of any depth: uint8, or uint16 in pictures of 16 bits.
Values = npt.NDArray[Any]


# By a format's depth.
VALUE_TYPES: dict[int, type[np.unsignedinteger[Any]]] = {8: np.uint8, 16: np.uint16}


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of ``alignment`` that is at least ``value``."""
    return -(-value // alignment) * alignment


@dataclass(frozen=True, slots=True)
class Shape:
    """What an op sees of a picture: size in pixels, 1 channel (grey) or 3 (blue, green, red), 8 or 16 bits a value."""

    width: int
    height: int
    channels: int
    depth: int = 8


@dataclass(frozen=True, slots=True)
class Stamp:
    """What may be written into a picture: whose it is, its number, and when it was taken (``time.time_ns()``)."""

    camera: str = ""
    sequence: int = 0
    wall_ns: int = 0


NO_STAMP = Stamp()


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """Format, size in pixels, and for each plane its offset and stride in bytes from the buffer's start.

    ``matrix`` and ``range`` say what YUV codes mean; they are carried, and ignored, for other formats.
    """

    format: PixelFormat
    width: int
    height: int
    offsets: tuple[int, ...]
    strides: tuple[int, ...]
    matrix: Matrix
    range: Range

    def __post_init__(self) -> None:
        check_size(self.width, self.height)
        if len(self.offsets) != len(self.format.planes) or len(self.strides) != len(self.format.planes):
            raise InputError("strides", f"{self.format} has {len(self.format.planes)} planes, got {self.strides}")
        for layout, stride, offset in zip(self.format.planes, self.strides, self.offsets, strict=True):
            if stride < layout.row_bytes(self.width):
                raise InputError(
                    "strides",
                    f"{stride} bytes is less than a row of {self.format} at {self.width} px",
                    f"{layout.row_bytes(self.width)} or more",
                )
            if offset < 0:
                raise InputError("offsets", f"{offset} is negative")
            if stride % self.format.value_bytes or offset % self.format.value_bytes:
                reason = f"{stride} at {offset} is no whole number of values of {self.format.depth} bits"
                raise InputError("strides", reason, f"multiples of {self.format.value_bytes} bytes")

    @classmethod
    def make(
        cls,
        format: PixelFormat,
        width: int,
        height: int,
        *,
        row_alignment: int = 1,
        plane_alignment: int = 1,
        matrix: Matrix | None = None,
        range: Range = Range.LIMITED,
    ) -> ImageSpec:
        """Planes one behind the other; 1 and 1 is the packed layout that files and drivers mean by a name.

        Raises:
            InputError: a size outside 1 to ``MAX_SIDE_PX``.
        """
        check_size(width, height)
        offsets: list[int] = []
        strides: list[int] = []
        end = 0
        for layout in format.planes:
            stride = align_up(layout.row_bytes(width), row_alignment)
            end = align_up(end, plane_alignment)
            offsets.append(end)
            strides.append(stride)
            end += stride * layout.rows(height)
        return cls(format, width, height, tuple(offsets), tuple(strides), matrix or default_matrix(height), range)

    @property
    def nbytes(self) -> int:
        """Bytes from the buffer's start to the last row's stride end of the last plane."""
        return max(
            offset + stride * layout.rows(self.height)
            for layout, offset, stride in zip(self.format.planes, self.offsets, self.strides, strict=True)
        )

    @property
    def pixel_bytes(self) -> int:
        """Bytes that belong to the picture, padding left out: what a packed copy of it takes."""
        return sum(layout.row_bytes(self.width) * layout.rows(self.height) for layout in self.format.planes)

    def plane_shape(self, index: int) -> tuple[int, ...]:
        """(rows, groups), or (rows, groups, values of a group) where those are more than one."""
        layout = self.format.planes[index]
        grid = (layout.rows(self.height), layout.groups(self.width))
        values = layout.group_bytes // self.format.value_bytes
        return grid if values == 1 else (*grid, values)

    def describe(self) -> str:
        """For people: ``1280x720 NV12 bt709 limited``."""
        text = f"{self.width}x{self.height} {self.format}"
        return f"{text} {self.matrix.value} {self.range.value}" if self.format.is_yuv else text


def check_size(width: int, height: int, field: str = "size") -> None:
    """Raise InputError unless both sides are 1 to ``MAX_SIDE_PX`` pixels."""
    if not (1 <= width <= MAX_SIDE_PX and 1 <= height <= MAX_SIDE_PX):
        raise InputError(field, f"{width}x{height} is not a size", f"1x1 to {MAX_SIDE_PX}x{MAX_SIDE_PX} px")


@dataclass(frozen=True, slots=True)
class ImageView:
    """A non-owning description of pixels: valid only while its owner (a lease, a buffer) is held.

    ``buffer`` is the host side, (n,) uint8 from the start of the specification's offsets; ``dev_ptr`` is the same
    byte's address as the GPU sees it, None where there is no GPU.
    """

    spec: ImageSpec
    buffer: Pixels
    dev_ptr: int | None = None

    def __post_init__(self) -> None:
        buffer = self.buffer
        if buffer.ndim != 1 or buffer.dtype != np.uint8 or not buffer.flags.c_contiguous:
            raise InputError(
                "buffer",
                f"{buffer.dtype} {buffer.shape} with strides {buffer.strides} is not one run of bytes",
                "a contiguous (n,) uint8 array",
            )
        if buffer.nbytes < self.spec.nbytes:
            raise InputError(
                "buffer",
                f"{buffer.nbytes} bytes cannot hold {self.spec.describe()}",
                f"{self.spec.nbytes} bytes or more",
            )
        if self.spec.format.value_bytes > 1 and self.address % self.spec.format.value_bytes:
            raise InputError("buffer", "starts at an odd address", f"a multiple of {self.spec.format.value_bytes}")

    @property
    def address(self) -> int:
        """Where ``buffer`` starts, as the CPU sees it."""
        return self.buffer.ctypes.data

    def plane(self, index: int) -> Values:
        """Plane ``index`` as a writable array of ``spec.plane_shape(index)``, strided, not copied.

        Its values are uint8; uint16 where the format's depth is 16.
        """
        spec = self.spec
        layout, value_bytes = spec.format.planes[index], spec.format.value_bytes
        shape = spec.plane_shape(index)
        strides = (spec.strides[index], layout.group_bytes, value_bytes)[: len(shape)]
        view: Values = np.ndarray(shape, VALUE_TYPES[spec.format.depth], self.buffer, spec.offsets[index], strides)
        return view

    @property
    def planes(self) -> tuple[Values, ...]:
        """All planes, in order."""
        return tuple(self.plane(i) for i in range(len(self.spec.format.planes)))

    def packed(self) -> Pixels:
        """A copy of the picture's bytes without padding, plane after plane, (pixel_bytes,) uint8."""
        return np.concatenate([plane.reshape(plane.shape[0], -1).ravel() for plane in self.planes]).view(np.uint8)


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A non-owning description of pixels that only the device sees: ``dev_ptr`` is the specification's first byte."""

    spec: ImageSpec
    dev_ptr: int


AnyView = ImageView | DeviceView
