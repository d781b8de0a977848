"""The kernel's side, as ``<linux/videodev2.h>`` has it on 64-bit Linux: structures, requests, and the flags we use.

Names of fields are the header's, so that its documentation can be read beside them; a test compiles the header and
compares sizes and offsets. Only what is used is here.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, Union, c_char, c_int32, c_int64, c_long, c_uint8, c_uint16, c_uint32, c_uint64, c_ulong

MAX_PLANES = 8
MAX_BUFFERS = 32  # VIDEO_MAX_FRAME: what every kernel grants

CAPTURE, CAPTURE_MPLANE = 1, 9  # enum v4l2_buf_type
MMAP, USERPTR = 1, 2  # enum v4l2_memory
FIELD_ANY, FIELD_NONE, FIELD_INTERLACED, FIELD_INTERLACED_TB, FIELD_INTERLACED_BT = 0, 1, 4, 8, 9
DISCRETE, CONTINUOUS, STEPWISE = 1, 2, 3  # enum v4l2_frmsizetypes, v4l2_frmivaltypes

CAP_VIDEO_CAPTURE, CAP_VIDEO_CAPTURE_MPLANE = 0x1, 0x1000
CAP_STREAMING, CAP_DEVICE_CAPS = 0x0400_0000, 0x8000_0000
CAP_TIMEPERFRAME = 0x1000
IN_CAP_DV_TIMINGS = 0x2
FMT_FLAG_COMPRESSED, FMT_FLAG_EMULATED = 0x1, 0x2

BUF_FLAG_ERROR = 0x40
BUF_FLAG_LAST = 0x0010_0000
BUF_FLAG_TIMESTAMP_MASK, BUF_FLAG_TIMESTAMP_MONOTONIC = 0xE000, 0x2000
BUF_FLAG_TSTAMP_SRC_MASK, BUF_FLAG_TSTAMP_SRC_SOE = 0x0007_0000, 0x0001_0000

EVENT_SOURCE_CHANGE = 5

CTRL_INTEGER, CTRL_BOOLEAN, CTRL_MENU, CTRL_BUTTON, CTRL_INTEGER64, CTRL_CTRL_CLASS = 1, 2, 3, 4, 5, 6
CTRL_STRING, CTRL_BITMASK, CTRL_INTEGER_MENU = 7, 8, 9
CTRL_FLAG_DISABLED, CTRL_FLAG_GRABBED, CTRL_FLAG_READ_ONLY = 0x1, 0x2, 0x4
CTRL_FLAG_INACTIVE, CTRL_FLAG_WRITE_ONLY = 0x10, 0x40
CTRL_FLAG_NEXT_CTRL = 0x8000_0000


class Fract(Structure):
    _fields_ = (("numerator", c_uint32), ("denominator", c_uint32))


class Capability(Structure):
    _fields_ = (
        ("driver", c_char * 16), ("card", c_char * 32), ("bus_info", c_char * 32), ("version", c_uint32),
        ("capabilities", c_uint32), ("device_caps", c_uint32), ("reserved", c_uint32 * 3),
    )  # fmt: skip


class FmtDesc(Structure):
    _fields_ = (
        ("index", c_uint32), ("type", c_uint32), ("flags", c_uint32), ("description", c_char * 32),
        ("pixelformat", c_uint32), ("mbus_code", c_uint32), ("reserved", c_uint32 * 3),
    )  # fmt: skip


class FrmSizeDiscrete(Structure):
    _fields_ = (("width", c_uint32), ("height", c_uint32))


class FrmSizeStepwise(Structure):
    _fields_ = (
        ("min_width", c_uint32), ("max_width", c_uint32), ("step_width", c_uint32),
        ("min_height", c_uint32), ("max_height", c_uint32), ("step_height", c_uint32),
    )  # fmt: skip


class _FrmSizeUnion(Union):
    _fields_ = (("discrete", FrmSizeDiscrete), ("stepwise", FrmSizeStepwise))


class FrmSizeEnum(Structure):
    _anonymous_ = ("u",)
    _fields_ = (
        ("index", c_uint32), ("pixel_format", c_uint32), ("type", c_uint32), ("u", _FrmSizeUnion),
        ("reserved", c_uint32 * 2),
    )  # fmt: skip


class FrmIvalStepwise(Structure):
    _fields_ = (("min", Fract), ("max", Fract), ("step", Fract))


class _FrmIvalUnion(Union):
    _fields_ = (("discrete", Fract), ("stepwise", FrmIvalStepwise))


class FrmIvalEnum(Structure):
    _anonymous_ = ("u",)
    _fields_ = (
        ("index", c_uint32), ("pixel_format", c_uint32), ("width", c_uint32), ("height", c_uint32),
        ("type", c_uint32), ("u", _FrmIvalUnion), ("reserved", c_uint32 * 2),
    )  # fmt: skip


class PixFormat(Structure):
    _fields_ = (
        ("width", c_uint32), ("height", c_uint32), ("pixelformat", c_uint32), ("field", c_uint32),
        ("bytesperline", c_uint32), ("sizeimage", c_uint32), ("colorspace", c_uint32), ("priv", c_uint32),
        ("flags", c_uint32), ("ycbcr_enc", c_uint32), ("quantization", c_uint32), ("xfer_func", c_uint32),
    )  # fmt: skip


class PlanePixFormat(Structure):
    _pack_ = 1
    _fields_ = (("sizeimage", c_uint32), ("bytesperline", c_uint32), ("reserved", c_uint16 * 6))


class PixFormatMplane(Structure):
    _pack_ = 1
    _fields_ = (
        ("width", c_uint32), ("height", c_uint32), ("pixelformat", c_uint32), ("field", c_uint32),
        ("colorspace", c_uint32), ("plane_fmt", PlanePixFormat * MAX_PLANES), ("num_planes", c_uint8),
        ("flags", c_uint8), ("ycbcr_enc", c_uint8), ("quantization", c_uint8), ("xfer_func", c_uint8),
        ("reserved", c_uint8 * 7),
    )  # fmt: skip


class _FormatUnion(Union):
    # The header's union holds pointers, too, which align it to 8.
    _fields_ = (("pix", PixFormat), ("pix_mp", PixFormatMplane), ("raw_data", c_uint64 * 25))


class Format(Structure):
    _fields_ = (("type", c_uint32), ("fmt", _FormatUnion))


class CaptureParm(Structure):
    _fields_ = (
        ("capability", c_uint32), ("capturemode", c_uint32), ("timeperframe", Fract), ("extendedmode", c_uint32),
        ("readbuffers", c_uint32), ("reserved", c_uint32 * 4),
    )  # fmt: skip


class _ParmUnion(Union):
    _fields_ = (("capture", CaptureParm), ("raw_data", c_uint8 * 200))


class StreamParm(Structure):
    _fields_ = (("type", c_uint32), ("parm", _ParmUnion))


class RequestBuffers(Structure):
    _fields_ = (
        ("count", c_uint32), ("type", c_uint32), ("memory", c_uint32), ("capabilities", c_uint32),
        ("flags", c_uint8), ("reserved", c_uint8 * 3),
    )  # fmt: skip


class TimeVal(Structure):
    _fields_ = (("tv_sec", c_long), ("tv_usec", c_long))


class TimeCode(Structure):
    _fields_ = (
        ("type", c_uint32), ("flags", c_uint32), ("frames", c_uint8), ("seconds", c_uint8), ("minutes", c_uint8),
        ("hours", c_uint8), ("userbits", c_uint8 * 4),
    )  # fmt: skip


class _PlaneUnion(Union):
    _fields_ = (("mem_offset", c_uint32), ("userptr", c_ulong), ("fd", c_int32))


class Plane(Structure):
    _fields_ = (
        ("bytesused", c_uint32), ("length", c_uint32), ("m", _PlaneUnion), ("data_offset", c_uint32),
        ("reserved", c_uint32 * 11),
    )  # fmt: skip


class _BufferUnion(Union):
    _fields_ = (("offset", c_uint32), ("userptr", c_ulong), ("planes", ctypes.POINTER(Plane)), ("fd", c_int32))


class Buffer(Structure):
    _fields_ = (
        ("index", c_uint32), ("type", c_uint32), ("bytesused", c_uint32), ("flags", c_uint32), ("field", c_uint32),
        ("timestamp", TimeVal), ("timecode", TimeCode), ("sequence", c_uint32), ("memory", c_uint32),
        ("m", _BufferUnion), ("length", c_uint32), ("reserved2", c_uint32), ("request_fd", c_int32),
    )  # fmt: skip


class Input(Structure):
    _fields_ = (
        ("index", c_uint32), ("name", c_char * 32), ("type", c_uint32), ("audioset", c_uint32), ("tuner", c_uint32),
        ("std", c_uint64), ("status", c_uint32), ("capabilities", c_uint32), ("reserved", c_uint32 * 3),
    )  # fmt: skip


class DvTimings(Structure):
    """What a cable carries; found by the driver and handed back to it, never read."""

    _fields_ = (("opaque", c_uint8 * 132),)


class QueryExtCtrl(Structure):
    _fields_ = (
        ("id", c_uint32), ("type", c_uint32), ("name", c_char * 32), ("minimum", c_int64), ("maximum", c_int64),
        ("step", c_uint64), ("default_value", c_int64), ("flags", c_uint32), ("elem_size", c_uint32),
        ("elems", c_uint32), ("nr_of_dims", c_uint32), ("dims", c_uint32 * 4), ("reserved", c_uint32 * 32),
    )  # fmt: skip


class _MenuUnion(Union):
    _pack_ = 1
    _fields_ = (("name", c_char * 32), ("value", c_int64))


class QueryMenu(Structure):
    _pack_ = 1
    _fields_ = (("id", c_uint32), ("index", c_uint32), ("u", _MenuUnion), ("reserved", c_uint32))


class _ControlUnion(Union):
    _pack_ = 1
    _fields_ = (("value", c_int32), ("value64", c_int64), ("ptr", ctypes.c_void_p))


class ExtControl(Structure):
    _pack_ = 1
    _fields_ = (("id", c_uint32), ("size", c_uint32), ("reserved2", c_uint32), ("u", _ControlUnion))


class ExtControls(Structure):
    _fields_ = (
        ("which", c_uint32), ("count", c_uint32), ("error_idx", c_uint32), ("request_fd", c_int32),
        ("reserved", c_uint32), ("controls", ctypes.POINTER(ExtControl)),
    )  # fmt: skip


class EventSubscription(Structure):
    _fields_ = (("type", c_uint32), ("id", c_uint32), ("flags", c_uint32), ("reserved", c_uint32 * 5))


class Event(Structure):
    _fields_ = (
        ("type", c_uint32), ("u", c_uint64 * 8), ("pending", c_uint32), ("sequence", c_uint32),
        ("timestamp", c_long * 2), ("id", c_uint32), ("reserved", c_uint32 * 8),
    )  # fmt: skip


# Structures by the header's names, for the test that compares them.
STRUCTURES: dict[str, type[Structure]] = {
    "v4l2_capability": Capability, "v4l2_fmtdesc": FmtDesc, "v4l2_frmsizeenum": FrmSizeEnum,
    "v4l2_frmivalenum": FrmIvalEnum, "v4l2_pix_format": PixFormat, "v4l2_plane_pix_format": PlanePixFormat,
    "v4l2_pix_format_mplane": PixFormatMplane, "v4l2_format": Format, "v4l2_captureparm": CaptureParm,
    "v4l2_streamparm": StreamParm, "v4l2_requestbuffers": RequestBuffers, "v4l2_timecode": TimeCode,
    "v4l2_plane": Plane, "v4l2_buffer": Buffer, "v4l2_input": Input, "v4l2_dv_timings": DvTimings,
    "v4l2_query_ext_ctrl": QueryExtCtrl, "v4l2_querymenu": QueryMenu, "v4l2_ext_control": ExtControl,
    "v4l2_ext_controls": ExtControls, "v4l2_event_subscription": EventSubscription, "v4l2_event": Event,
}  # fmt: skip

_READ, _WRITE = 2, 1


def _request(direction: int, number: int, kind: type[ctypes._SimpleCData[int]] | type[Structure]) -> int:
    """``_IOC`` of <asm-generic/ioctl.h>, as x86 and ARM have it."""
    return direction << 30 | ctypes.sizeof(kind) << 16 | ord("V") << 8 | number


QUERYCAP = _request(_READ, 0, Capability)
ENUM_FMT = _request(_READ | _WRITE, 2, FmtDesc)
G_FMT = _request(_READ | _WRITE, 4, Format)
S_FMT = _request(_READ | _WRITE, 5, Format)
REQBUFS = _request(_READ | _WRITE, 8, RequestBuffers)
QUERYBUF = _request(_READ | _WRITE, 9, Buffer)
QBUF = _request(_READ | _WRITE, 15, Buffer)
DQBUF = _request(_READ | _WRITE, 17, Buffer)
STREAMON = _request(_WRITE, 18, c_int32)
STREAMOFF = _request(_WRITE, 19, c_int32)
G_PARM = _request(_READ | _WRITE, 21, StreamParm)
S_PARM = _request(_READ | _WRITE, 22, StreamParm)
ENUMINPUT = _request(_READ | _WRITE, 26, Input)
QUERYMENU = _request(_READ | _WRITE, 37, QueryMenu)
G_INPUT = _request(_READ, 38, c_int32)
S_INPUT = _request(_READ | _WRITE, 39, c_int32)
G_EXT_CTRLS = _request(_READ | _WRITE, 71, ExtControls)
S_EXT_CTRLS = _request(_READ | _WRITE, 72, ExtControls)
ENUM_FRAMESIZES = _request(_READ | _WRITE, 74, FrmSizeEnum)
ENUM_FRAMEINTERVALS = _request(_READ | _WRITE, 75, FrmIvalEnum)
S_DV_TIMINGS = _request(_READ | _WRITE, 87, DvTimings)
DQEVENT = _request(_READ, 89, Event)
SUBSCRIBE_EVENT = _request(_WRITE, 90, EventSubscription)
QUERY_DV_TIMINGS = _request(_READ, 99, DvTimings)
QUERY_EXT_CTRL = _request(_READ | _WRITE, 103, QueryExtCtrl)

REQUESTS: dict[str, int] = {
    f"VIDIOC_{name}": value
    for name, value in list(globals().items())
    if isinstance(value, int) and name.isupper() and value >> 8 & 0xFF == ord("V") and value > 1 << 29
}
"""By the header's names."""


def fourcc(code: str) -> int:
    """A format's number of its four letters."""
    return int.from_bytes(code.encode("latin-1"), "little")


def code_of(number: int) -> str:
    """A format's four letters; the bit for big-endian is shown as ``-BE``, as the kernel does."""
    text = (number & 0x7FFF_FFFF).to_bytes(4, "little").decode("latin-1")
    return f"{text.strip()}-BE" if number >> 31 else text
