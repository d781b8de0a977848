"""Settles format, size and rate with a driver: what was asked for as far as the camera has it, else the nearest."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from fractions import Fraction

from kernels.errors import PinholeError
from kernels.image import PLANE_ALIGNMENT, align_up
from pipeline.v4l2 import abi
from pipeline.v4l2.device import CameraDevice, RequestError
from pipeline.v4l2.modes import Offered, offered, rate_of
from pipeline.v4l2.pixels import DECODED, FORMATS, Negotiated, matrix_of, names_of, range_of, steps_of

_FIELDS = (abi.FIELD_NONE, abi.FIELD_ANY, abi.FIELD_INTERLACED, abi.FIELD_INTERLACED_TB, abi.FIELD_INTERLACED_BT)


class UnfitCameraError(PinholeError):
    """The camera has nothing that can be used as it was asked for; the text says what it has."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for; None is the driver's choice."""

    size: tuple[int, int] | None = None
    fps: Fraction | None = None
    format: str | None = None


def choose(formats: tuple[Offered, ...], wish: Wish, size: tuple[int, int]) -> str:
    """The format to ask for, by its four letters: the one that is wished for, else the best that has size and rate.

    Best is what costs least: the order of ``pixels.FORMATS``, then what has to be decoded. Formats that the C library
    would make (emulated) are left out.

    Raises:
        UnfitCameraError: none is usable, or the camera has not that one.
    """
    usable = [one for one in formats if one.usable and not one.emulated]
    has = ", ".join(one.code.strip() for one in formats) or "nothing"
    if wish.format is not None:
        wanted = wish.format.upper()
        for one in usable:
            if wanted in {name.upper() for name in names_of(one.code)}:
                return one.code
        known = any(wanted in {name.upper() for name in names_of(one.code)} for one in formats)
        raise UnfitCameraError(
            f"format {wish.format} {'cannot be used here' if known else 'is not offered'}; the camera has {has}"
        )
    if not usable:
        raise UnfitCameraError(f"the camera has {has}; Pinhole takes {', '.join((*FORMATS, *DECODED))}")
    order = {code: rank for rank, code in enumerate((*FORMATS, *DECODED))}
    usable.sort(key=lambda one: order[one.code])
    best = [
        one
        for one in usable
        if not one.modes or ((mode := one.mode(*size)) is not None and (wish.fps is None or mode.has_rate(wish.fps)))
    ]
    return (best or usable)[0].code


def negotiate(device: CameraDevice, buf_type: int, wish: Wish) -> Negotiated:
    """Set the format. Chroma planes need whole groups: an odd size is asked for again, one smaller.

    Raises:
        UnfitCameraError, RequestError
    """
    now = current(device, buf_type)
    size = wish.size or (now.width, now.height)
    code = choose(offered(device, buf_type), wish, size)
    found = set_format(device, buf_type, code, *size)
    x_step, y_step = steps_of(found.code)
    if found.width % x_step or found.height % y_step:
        found = set_format(device, buf_type, code, found.width // x_step * x_step, found.height // y_step * y_step)
    if found.code != code:
        raise UnfitCameraError(f"the driver gives {found.code.strip()} where {code.strip()} was asked for")
    if found.width % x_step or found.height % y_step:
        raise UnfitCameraError(
            f"the driver insists on {found.width}x{found.height}, which {code.strip()} cannot have whole"
        )
    if found.field not in _FIELDS:
        raise UnfitCameraError(f"the driver delivers single fields (V4L2 field {found.field}); whole frames are needed")
    return found


def current(device: CameraDevice, buf_type: int) -> Negotiated:
    """The format that is set now. Raises RequestError."""
    format = abi.Format(type=buf_type)
    device.call("G_FMT", abi.G_FMT, format)
    return _negotiated(format)


def set_format(device: CameraDevice, buf_type: int, code: str, width: int, height: int) -> Negotiated:
    """Ask for a format and size, in rows of whole lines where the driver can; what it gives. Raises RequestError."""
    format = abi.Format(type=buf_type)
    planes = FORMATS[code].planes if code in FORMATS else ()
    # A packed or planar format's first stride: the others follow from it, in halves.
    stride = align_up(planes[0].row_bytes(width), PLANE_ALIGNMENT) if planes else 0
    if len(planes) == 3:
        stride = align_up(stride, 2 * PLANE_ALIGNMENT)
    if buf_type == abi.CAPTURE_MPLANE:
        mp = format.fmt.pix_mp
        mp.width, mp.height, mp.pixelformat, mp.field = width, height, abi.fourcc(code), abi.FIELD_NONE
        mp.plane_fmt[0].bytesperline = stride
        for index in range(1, len(planes)):
            mp.plane_fmt[index].bytesperline = align_up(planes[index].row_bytes(width), PLANE_ALIGNMENT)
    else:
        pix = format.fmt.pix
        pix.width, pix.height, pix.pixelformat, pix.field = width, height, abi.fourcc(code), abi.FIELD_NONE
        pix.bytesperline = stride
    device.call("S_FMT", abi.S_FMT, format)
    return _negotiated(format)


def _negotiated(format: abi.Format) -> Negotiated:
    if format.type == abi.CAPTURE_MPLANE:
        mp = format.fmt.pix_mp
        planes = mp.plane_fmt[: max(1, min(mp.num_planes, abi.MAX_PLANES))]
        strides, sizes = tuple(p.bytesperline for p in planes), tuple(p.sizeimage for p in planes)
        width, height, number, field = mp.width, mp.height, mp.pixelformat, mp.field
        colorspace, encoding, quantization = mp.colorspace, mp.ycbcr_enc, mp.quantization
    else:
        pix = format.fmt.pix
        strides, sizes = (pix.bytesperline,), (pix.sizeimage,)
        width, height, number, field = pix.width, pix.height, pix.pixelformat, pix.field
        colorspace, encoding, quantization = pix.colorspace, pix.ycbcr_enc, pix.quantization
    matrix, value_range = matrix_of(colorspace, encoding, height), range_of(colorspace, quantization)
    return Negotiated(abi.code_of(number), width, height, strides, sizes, field, matrix, value_range)


def set_rate(device: CameraDevice, buf_type: int, fps: Fraction | None) -> Fraction | None:
    """Ask for a rate, if one is given; the rate that is set then, None where the driver does not tell."""
    parm = abi.StreamParm(type=buf_type)
    if not device.tries("G_PARM", abi.G_PARM, parm):
        return None
    if fps is not None and parm.parm.capture.capability & abi.CAP_TIMEPERFRAME:
        asked = fps.limit_denominator(10**6)
        parm.parm.capture.timeperframe = abi.Fract(asked.denominator, asked.numerator)
        with contextlib.suppress(RequestError):  # a wish: what came of it is read back
            device.call("S_PARM", abi.S_PARM, parm)
        device.tries("G_PARM", abi.G_PARM, parm)
    return rate_of(parm.parm.capture.timeperframe)


def select_input(device: CameraDevice, number: int | None) -> None:
    """Choose a connector, and take over what its cable carries (HDMI and its like) where the driver sees that.

    Raises:
        UnfitCameraError: there is no such input; lists those there are.
    """
    if number is not None and not device.tries("S_INPUT", abi.S_INPUT, ctypes.c_int32(number)):
        inputs = device.each("ENUMINPUT", abi.ENUMINPUT, lambda i: abi.Input(index=i), 64)
        has = ", ".join(f"{one.index} ({one.name.decode(errors='replace')})" for one in inputs) or "none"
        raise UnfitCameraError(f"there is no input {number}; the camera has {has}")
    timings = abi.DvTimings()
    if device.tries("QUERY_DV_TIMINGS", abi.QUERY_DV_TIMINGS, timings):
        device.tries("S_DV_TIMINGS", abi.S_DV_TIMINGS, timings)
