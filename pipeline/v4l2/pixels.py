"""Formats of the kernel and ours: which are taken, where their planes lie, and what their colours mean."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.errors import InputError
from kernels.formats import (
    BGR8,
    GRAY8,
    GRAY16,
    I420,
    NV12,
    RGB8,
    UYVY,
    YUYV,
    Matrix,
    PixelFormat,
    PlaneLayout,
    Range,
    default_matrix,
)
from kernels.image import ImageSpec, align_up

PAGE = 4096

# By the kernel's four letters, best first: what is asked for if nobody says what. Those of video cost the least to
# carry; NM12 and YM12 have a memory for each plane.
FORMATS: dict[str, PixelFormat] = {
    "NV12": NV12, "NM12": NV12, "YU12": I420, "YM12": I420, "YUYV": YUYV, "UYVY": UYVY,
    "BGR3": BGR8, "RGB3": RGB8, "GREY": GRAY8, "Y16 ": GRAY16,
}  # fmt: skip
DECODED = ("MJPG", "JPEG")  # pictures that are decoded into BGR8

_SRGB_JPEG = 7  # V4L2_COLORSPACE_JPEG
_COLORSPACE_MATRIX = {
    1: Matrix.BT601,
    3: Matrix.BT709,
    5: Matrix.BT601,
    6: Matrix.BT601,
    7: Matrix.BT601,
    8: Matrix.BT601,
}
_ENCODING_MATRIX = {1: Matrix.BT601, 2: Matrix.BT709, 3: Matrix.BT601, 4: Matrix.BT709}
_FULL, _LIMITED = 1, 2


def names_of(code: str) -> set[str]:
    """What a format may be called in a URI: the kernel's letters, and our name."""
    known = FORMATS.get(code)
    return {code.strip()} | ({known.name} if known is not None else set())


def matrix_of(colorspace: int, encoding: int, height: int) -> Matrix:
    """By V4L2_MAP_YCBCR_ENC_DEFAULT; a driver that says nothing means what video means at that size."""
    return _ENCODING_MATRIX.get(encoding) or _COLORSPACE_MATRIX.get(colorspace) or default_matrix(height)


def range_of(colorspace: int, quantization: int) -> Range:
    """By V4L2_MAP_QUANTIZATION_DEFAULT for Y'CbCr: limited, but for pictures like JPEG's."""
    if quantization in (_FULL, _LIMITED):
        return Range.FULL if quantization == _FULL else Range.LIMITED
    return Range.FULL if colorspace == _SRGB_JPEG else Range.LIMITED


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What a driver settled on. ``strides`` and ``sizes`` are of its memories: one, or one for each plane."""

    code: str
    width: int
    height: int
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    field: int
    matrix: Matrix
    range: Range

    @property
    def decoded(self) -> bool:
        return self.code in DECODED

    def image(self) -> ImageSpec:
        """The picture, packed. Raises InputError: a size that no slot has."""
        format = BGR8 if self.decoded else FORMATS[self.code]
        return ImageSpec.make(format, self.width, self.height, matrix=self.matrix, range=self.range)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a driver writes in one run of bytes: the planes, and ``offsets`` and ``lengths`` of its memories."""

    spec: ImageSpec
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def needed_bytes(self) -> tuple[int, ...]:
        """:meth:`needed` of each memory."""
        return tuple(self.needed(memory) for memory in range(len(self.offsets)))

    @property
    def nbytes(self) -> int:
        return max(o + n for o, n in zip(self.offsets, self.lengths, strict=True))

    def needed(self, memory: int) -> int:
        """Bytes of one memory, from its start, that belong to the picture: up to its last row's last pixel."""
        spec, last = self.spec, 0
        many = len(self.offsets) > 1
        for plane, layout in enumerate(spec.format.planes):
            if not many or plane == memory:
                rows = layout.rows(spec.height)
                end = spec.offsets[plane] + (rows - 1) * spec.strides[plane] + layout.row_bytes(spec.width)
                last = max(last, end - self.offsets[memory])
        return last


def layout_of(negotiated: Negotiated) -> Layout:
    """Where the planes come to lie: with one memory as the format has it, else each from a page of its own.

    Of planes that share a memory the driver gives the first one's stride; the others' are in proportion (V4L2, "planar
    YUV formats").

    Raises:
        InputError: sizes that do not fit each other.
    """
    image = negotiated.image()
    planes, format = image.format.planes, image.format
    many = len(negotiated.sizes) > 1
    if many and len(negotiated.sizes) != len(planes):
        raise InputError("format", f"the driver has {len(negotiated.sizes)} memories for {format}", f"{len(planes)}")
    strides: list[int] = []
    offsets: list[int] = []
    starts: list[int] = []
    end = 0
    for index, plane in enumerate(planes):
        stride = negotiated.strides[index if many else 0]
        if not many and index:
            stride = (
                stride * _density(plane)[0] * _density(planes[0])[1] // (_density(plane)[1] * _density(planes[0])[0])
            )
        stride = max(stride, plane.row_bytes(image.width)) if stride == 0 else stride
        if many or index == 0:
            end = align_up(end, PAGE)
            starts.append(end)
        strides.append(stride)
        offsets.append(end)
        end = starts[-1] + negotiated.sizes[index] if many else end + stride * plane.rows(image.height)
    spec = ImageSpec(
        format, image.width, image.height, tuple(offsets), tuple(strides), negotiated.matrix, negotiated.range
    )
    layout = Layout(spec, tuple(starts), negotiated.sizes)
    for memory, size in enumerate(negotiated.sizes):
        if (needed := layout.needed(memory)) > size:
            raise InputError(
                "format", f"the driver's buffer of {size} bytes is too small for {image.describe()}", f"{needed} bytes"
            )
    return layout


def _density(plane: PlaneLayout) -> tuple[int, int]:
    """Bytes and pixels of a group along a row."""
    return plane.group_bytes, plane.x_step


def steps_of(code: str) -> tuple[int, int]:
    """What width and height must be multiples of, for whole groups in every plane."""
    planes = FORMATS[code].planes if code in FORMATS else ()
    return max((p.x_step for p in planes), default=1), max((p.y_step for p in planes), default=1)
