"""Small video files made on the spot, with every pixel and stamp known."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

Planes = Sequence[npt.NDArray[np.uint8]]
TIME_BASE = Fraction(1, 1000)
LOSSLESS = {"yuv420p": "ffv1", "yuvj420p": "ffv1", "gray": "ffv1"}  # other formats as they are


@dataclass(frozen=True)
class Stream:
    """What kind of stream ``write_video`` makes. ``codec`` None: one that keeps every pixel of ``pix_fmt``."""

    pix_fmt: str = "yuv420p"
    codec: str | None = None
    fps: int = 25
    colorspace: int | None = None
    color_range: int | None = None
    options: dict[str, str] = field(default_factory=dict)


def make_frame(planes: Planes, pix_fmt: str, width: int, height: int) -> av.VideoFrame:
    """A frame with these rows of bytes, (rows, bytes of a row), in its planes."""
    frame = av.VideoFrame(width, height, pix_fmt)
    assert len(frame.planes) == len(planes)
    for target, rows in zip(frame.planes, planes, strict=True):
        padded = np.zeros((rows.shape[0], target.line_size), np.uint8)
        padded[:, : rows.shape[1]] = rows
        target.update(padded.tobytes())
    return frame


def write_video(
    path: Path, pictures: Iterable[Planes], width: int, height: int, stream: Stream = Stream(), *,
    pts_ms: Sequence[int] | None = None,
) -> Path:  # fmt: skip
    """A video of the pictures' planes; ``pts_ms`` are the stamps, else they follow ``stream.fps``."""
    codec = stream.codec or LOSSLESS.get(stream.pix_fmt, "rawvideo")
    with av.open(str(path), "w") as container:
        out = container.add_stream(codec, rate=stream.fps, options=dict(stream.options))
        assert isinstance(out, av.VideoStream)
        out.width, out.height, out.pix_fmt = width, height, stream.pix_fmt
        out.codec_context.time_base = TIME_BASE
        out.time_base = TIME_BASE
        for name in ("colorspace", "color_range"):
            if (value := getattr(stream, name)) is not None:
                setattr(out.codec_context, name, value)
        for index, planes in enumerate(pictures):
            frame = make_frame(planes, stream.pix_fmt, width, height)
            for name in ("colorspace", "color_range"):
                if (value := getattr(stream, name)) is not None:
                    setattr(frame, name, value)
            frame.time_base = TIME_BASE
            frame.pts = pts_ms[index] if pts_ms is not None else index * 1000 // stream.fps
            container.mux(out.encode(frame))
        container.mux(out.encode(None))
    return path


def turn_by_metadata(path: Path, matrix: tuple[int, int, int, int]) -> Path:
    """Put a, b, c, d into the display matrix of an MP4's only track header, in the file's own bytes."""
    data = bytearray(path.read_bytes())
    box = data.index(b"tkhd") + 4
    assert data.count(b"tkhd") == 1
    assert data[box] == 0  # version 0: 40 bytes of fields lie before the matrix
    a, b, c, d = (value << 16 for value in matrix)
    data[box + 40 : box + 76] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path


def packets_of(path: Path) -> list[tuple[int, int]]:
    """(position, size) in the file of each video packet, in the order of the file."""
    with av.open(str(path)) as container:
        return [(p.pos, p.size) for p in container.demux(video=0) if p.size and p.pos is not None]


def zeroed(path: Path, target: Path, holes: Iterable[tuple[int, int]]) -> Path:
    """A copy whose bytes are zero in each (position, length)."""
    data = bytearray(path.read_bytes())
    for position, length in holes:
        assert position + length <= len(data)
        data[position : position + length] = bytes(length)
    target.write_bytes(data)
    return target
