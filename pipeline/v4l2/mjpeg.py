"""Pictures of cameras that send JPEG, decoded on the CPU straight into a slot; damaged ones are told apart."""

from __future__ import annotations

import simplejpeg

from kernels.image import ImageView, Pixels
from pipeline.sources.base import FrameCorrupt

_START = b"\xff\xd8\xff"


def decode_into(data: Pixels, view: ImageView) -> None:
    """Decode one picture, (n,) uint8, into a BGR8 view whose rows lie one behind the other.

    Whatever the decoder warns of is damage: cut off data, missing or surplus bytes between markers.

    Raises:
        FrameCorrupt: damaged, or of another size.
    """
    spec = view.spec
    if data.nbytes < 4 or data[:3].tobytes() != _START:
        raise FrameCorrupt("corrupt", f"{data.nbytes} bytes that are no JPEG")
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        if (width, height) != (spec.width, spec.height):
            raise FrameCorrupt("size", f"a JPEG of {width}x{height} where {spec.width}x{spec.height} was agreed")
        simplejpeg.decode_jpeg(data, "BGR", buffer=view.plane(0))
    except ValueError as error:
        raise FrameCorrupt("corrupt", f"a damaged JPEG: {error}") from None
