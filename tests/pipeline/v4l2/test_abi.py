"""Structures and request numbers against the kernel's own header, compiled here."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import pytest

from pipeline.v4l2 import abi
from tests import programs

HEADER = Path("/usr/include/linux/videodev2.h")


def members(kind: type[ctypes.Structure]) -> list[str]:
    """Fields as C names them; a union's own members are reached through it."""
    return [name for name, *_ in kind._fields_ if name not in ("u", "opaque")]


def program() -> str:
    lines = [
        "#include <linux/videodev2.h>",
        "#include <stdio.h>",
        "#include <stddef.h>",
        "int main(void) {",
        'puts("{");',
    ]
    for name, kind in abi.STRUCTURES.items():
        lines.append(f'printf("\\"{name}\\": {{\\"sizeof\\": %zu", sizeof(struct {name}));')
        for field in members(kind):
            lines.append(f'printf(", \\"{field}\\": %zu", offsetof(struct {name}, {field}));')
        lines.append('puts("},");')
    for name in abi.REQUESTS:
        lines.append(f'printf("\\"{name}\\": %lu,\\n", (unsigned long)(unsigned int){name});')
    for value, name in CONSTANTS:
        lines.append(f'printf("\\"{name}\\": %lld,\\n", (long long)(unsigned int){name});')
        assert isinstance(value, int)
    return "\n".join([*lines, 'puts("\\"end\\": 0}");', "return 0; }", ""])


CONSTANTS = (
    (abi.CAPTURE, "V4L2_BUF_TYPE_VIDEO_CAPTURE"), (abi.CAPTURE_MPLANE, "V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE"),
    (abi.MMAP, "V4L2_MEMORY_MMAP"), (abi.USERPTR, "V4L2_MEMORY_USERPTR"), (abi.FIELD_NONE, "V4L2_FIELD_NONE"),
    (abi.FIELD_INTERLACED, "V4L2_FIELD_INTERLACED"), (abi.FIELD_INTERLACED_TB, "V4L2_FIELD_INTERLACED_TB"),
    (abi.FIELD_INTERLACED_BT, "V4L2_FIELD_INTERLACED_BT"), (abi.DISCRETE, "V4L2_FRMSIZE_TYPE_DISCRETE"),
    (abi.STEPWISE, "V4L2_FRMSIZE_TYPE_STEPWISE"), (abi.DISCRETE, "V4L2_FRMIVAL_TYPE_DISCRETE"),
    (abi.CAP_VIDEO_CAPTURE, "V4L2_CAP_VIDEO_CAPTURE"), (abi.CAP_VIDEO_CAPTURE_MPLANE, "V4L2_CAP_VIDEO_CAPTURE_MPLANE"),
    (abi.CAP_STREAMING, "V4L2_CAP_STREAMING"), (abi.CAP_DEVICE_CAPS, "V4L2_CAP_DEVICE_CAPS"),
    (abi.CAP_TIMEPERFRAME, "V4L2_CAP_TIMEPERFRAME"), (abi.IN_CAP_DV_TIMINGS, "V4L2_IN_CAP_DV_TIMINGS"),
    (abi.FMT_FLAG_COMPRESSED, "V4L2_FMT_FLAG_COMPRESSED"), (abi.FMT_FLAG_EMULATED, "V4L2_FMT_FLAG_EMULATED"),
    (abi.BUF_FLAG_ERROR, "V4L2_BUF_FLAG_ERROR"), (abi.BUF_FLAG_LAST, "V4L2_BUF_FLAG_LAST"),
    (abi.BUF_FLAG_TIMESTAMP_MASK, "V4L2_BUF_FLAG_TIMESTAMP_MASK"),
    (abi.BUF_FLAG_TIMESTAMP_MONOTONIC, "V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC"),
    (abi.BUF_FLAG_TSTAMP_SRC_MASK, "V4L2_BUF_FLAG_TSTAMP_SRC_MASK"),
    (abi.BUF_FLAG_TSTAMP_SRC_SOE, "V4L2_BUF_FLAG_TSTAMP_SRC_SOE"),
    (abi.EVENT_SOURCE_CHANGE, "V4L2_EVENT_SOURCE_CHANGE"),
    (abi.CTRL_INTEGER, "V4L2_CTRL_TYPE_INTEGER"), (abi.CTRL_BOOLEAN, "V4L2_CTRL_TYPE_BOOLEAN"),
    (abi.CTRL_MENU, "V4L2_CTRL_TYPE_MENU"), (abi.CTRL_BUTTON, "V4L2_CTRL_TYPE_BUTTON"),
    (abi.CTRL_INTEGER64, "V4L2_CTRL_TYPE_INTEGER64"), (abi.CTRL_BITMASK, "V4L2_CTRL_TYPE_BITMASK"),
    (abi.CTRL_INTEGER_MENU, "V4L2_CTRL_TYPE_INTEGER_MENU"), (abi.CTRL_FLAG_DISABLED, "V4L2_CTRL_FLAG_DISABLED"),
    (abi.CTRL_FLAG_READ_ONLY, "V4L2_CTRL_FLAG_READ_ONLY"), (abi.CTRL_FLAG_INACTIVE, "V4L2_CTRL_FLAG_INACTIVE"),
    (abi.CTRL_FLAG_WRITE_ONLY, "V4L2_CTRL_FLAG_WRITE_ONLY"), (abi.CTRL_FLAG_NEXT_CTRL, "V4L2_CTRL_FLAG_NEXT_CTRL"),
    (abi.MAX_PLANES, "VIDEO_MAX_PLANES"), (abi.MAX_BUFFERS, "VIDEO_MAX_FRAME"),
    (abi.fourcc("YUYV"), "V4L2_PIX_FMT_YUYV"), (abi.fourcc("NM12"), "V4L2_PIX_FMT_NV12M"),
    (abi.fourcc("Y16 "), "V4L2_PIX_FMT_Y16"), (abi.fourcc("BGR3"), "V4L2_PIX_FMT_BGR24"),
)  # fmt: skip


@pytest.mark.program("cc")
def test_structures_requests_and_constants_are_the_headers(tmp_path: Path) -> None:
    if not HEADER.exists():
        pytest.skip(f"{HEADER} is not there (linux-libc-dev)")
    source, binary = tmp_path / "abi.c", tmp_path / "abi"
    source.write_text(program())
    subprocess.run([programs.program("cc"), "-o", binary, source], check=True, timeout=60)
    theirs = json.loads(subprocess.run([binary], check=True, capture_output=True, timeout=10).stdout)
    for name, kind in abi.STRUCTURES.items():
        ours = {"sizeof": ctypes.sizeof(kind)} | {field: getattr(kind, field).offset for field in members(kind)}
        assert ours == theirs[name], name
    assert len(abi.REQUESTS) == 25
    assert {name: theirs[name] for name in abi.REQUESTS} == abi.REQUESTS
    assert [(theirs[name], name) for _, name in CONSTANTS] == list(CONSTANTS)


def test_a_code_is_four_letters_either_way() -> None:
    for code in ("YUYV", "NV12", "Y16 ", "BGR3", "GREY", "MJPG"):
        assert abi.code_of(abi.fourcc(code)) == code
    assert abi.code_of(abi.fourcc("Y16 ") | 1 << 31) == "Y16-BE"
