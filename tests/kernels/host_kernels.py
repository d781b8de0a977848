"""Compiles the kernels of pixel and temporal ops as plain C++, so that a machine without a GPU runs their own text.

One thread after the other does what a block's threads do together: pixel kernels share nothing and never wait. With the
undefined-behaviour sanitizer, so that an overflow or a misaligned word ends the process.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kernels.chain import Chain, Step
from kernels.codegen import headers
from kernels.geometry import THREADS
from kernels.image import NO_STAMP, Pixels, Shape, align_up
from kernels.op import MAX_TEXT_BYTES, OpKind, PixelOp, TemporalOp, TextOp
from kernels.plan import Plan, make_plan
from kernels.registry import all_ops
from kernels.stages import OP_BYTES
from tests.kernels.cases import GUARD_BYTES, STALE, SourceCase, random_source

# A stencil reads the reflection that a tile holds: see host_windows.py.
PIXEL_OPS = {name: op for name, op in all_ops().items() if isinstance(op, PixelOp) and op.kind is not OpKind.STENCIL}
TEMPORAL_OPS = {name: op for name, op in all_ops().items() if isinstance(op, TemporalOp)}

PRELUDE = """
#include <algorithm>
#include <cmath>
using std::max;
using std::min;
#define __device__
#define __forceinline__ inline
struct uint4 { unsigned x, y, z, w; };
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcs(T* address, T value) { *address = value; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned __int128)a * b >> 64;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
struct Index { unsigned x; };
static Index threadIdx;
"""


_HEADERS = ("common", "pixel", "resample", "sampling")


def build(compiler: str, folder: Path) -> ctypes.CDLL:
    """A library with ``NAME_cCHANNELS(in, stride, in_size, out, pitch, x0, y0, right, bottom, size, params, text)``.

    Of a temporal op: ``NAME_cCHANNELS(in, stride, size, out, pitch, x0, y0, width, height, states, first, params)``.
    """
    text = PRELUDE + "".join(
        line + "\n"
        for name in _HEADERS
        for line in headers()[f"pinhole/{name}.cuh"].split("\n")
        if not line.startswith(("#include", "#pragma once"))
    )
    for name, op in PIXEL_OPS.items():
        text += op.cuda_source
        for channels in (1, 3):
            made = op.output(Shape(1, 1, channels), op.Params()).channels
            text += f"""
extern "C" void {name}_c{channels}(const uint8* in, int stride, Size in_size, uint8* out, int pitch, int x0, int y0,
                                   int right, int bottom, Size size, const {name}_params* p, const uint8* text) {{
  const auto function = [&](const Picture<{channels}>& in, int x, int y, Size size, uint8* out) {{
    {name}<{channels}>(in, x, y, size, *p, {"text, " if isinstance(op, TextOp) else ""}out);
  }};
  for (threadIdx.x = 0; threadIdx.x < {THREADS}; ++threadIdx.x)
    make_pixels<{channels}, {made}>(Picture<{channels}>{{in, stride, in_size}}, out, pitch, x0, y0, 0, right, 0, bottom,
                                    size, function);
}}
"""
    for name, temporal in TEMPORAL_OPS.items():
        text += temporal.cuda_source
        for channels in (1, 3):
            made, state = (
                temporal.output(Shape(1, 1, channels), temporal.Params()).channels,
                f"{name}_state<{channels}>",
            )
            text += f"""
static_assert(sizeof({state}) == {temporal.state_bytes(channels)});
extern "C" void {name}_c{channels}(const uint8* in, int stride, Size size, uint8* out, int pitch, int x0, int y0,
                                   int width, int height, {state}* states, bool first, const {name}_params* p) {{
  const auto function = [&](const uint8* in, {state}& state, int x, int y, Size size, uint8* out) {{
    {name}<{channels}>(in, state, first, x, y, size, *p, out);
  }};
  for (threadIdx.x = 0; threadIdx.x < {THREADS}; ++threadIdx.x)
    update_pixels<{channels}, {made}>(Picture<{channels}>{{in, stride, size}}, out, pitch, x0, y0, width, height,
                                      states, function);
}}
"""
    source, library = folder / "pixel_ops.cpp", folder / "pixel_ops.so"
    source.write_text(text, encoding="utf-8")
    sanitizer = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
    options = ["-std=c++17", "-O1", "-ffp-contract=off", *sanitizer, "-shared", "-fPIC"]
    command = [compiler, *options, "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


class _Size(ctypes.Structure):
    _fields_ = (("width", ctypes.c_int), ("height", ctypes.c_int))


TILE_PX, TILE_ROWS = 128, 16


def run(library: ctypes.CDLL, step: Step, case: SourceCase) -> tuple[Pixels, Pixels]:
    """The op's kernel on a random picture, tile by tile: the picture and the result.

    Asserts that nothing was written beside the rows that a tile has in the picture.
    """
    plan: Plan = make_plan(Chain((step,)), case.spec())
    before, after = plan.pictures
    source = random_source(before).plane(0)
    radius = step.op.radius(step.params)
    around = ((radius, radius), (radius, radius), (0, 0))[: source.ndim]
    seen = np.ascontiguousarray(np.pad(source, around, "reflect") if radius else source)
    channels = after.format.channels
    result = np.empty((after.height, after.width) if channels == 1 else (after.height, after.width, 3), np.uint8)
    params = ctypes.create_string_buffer(step.op.constants(step.params), OP_BYTES)
    made_text = step.op.text(step.params, NO_STAMP) if isinstance(step.op, TextOp) else b""
    text = ctypes.create_string_buffer(made_text, MAX_TEXT_BYTES)
    function = getattr(library, f"{step.op.name}_c{before.format.channels}")
    pitch = TILE_PX * channels + GUARD_BYTES
    for y0 in range(0, after.height, TILE_ROWS):
        for x0 in range(0, after.width, TILE_PX):
            buffer = np.full((TILE_ROWS + 2, pitch), STALE, np.uint8)
            function(
                ctypes.c_void_p(seen.ctypes.data + radius * (seen.strides[0] + seen.strides[1])), seen.strides[0],
                _Size(before.width, before.height), ctypes.c_void_p(buffer[1].ctypes.data), pitch, x0, y0,
                TILE_PX, TILE_ROWS, _Size(after.width, after.height), params, text,
            )  # fmt: skip
            rows, columns = min(TILE_ROWS, after.height - y0), min(TILE_PX, after.width - x0)
            made = buffer[1 : 1 + rows, : columns * channels]
            result[y0 : y0 + rows, x0 : x0 + columns] = made.reshape(rows, columns, *result.shape[2:])
            made[...] = STALE
            # A thread makes four pixels: what lies right of the picture's last ones is never read.
            buffer[1 : 1 + rows, columns * channels : align_up(columns, 4) * channels] = STALE
            assert (buffer == STALE).all(), "written beside the result"
    return source, result


def run_frames(library: ctypes.CDLL, steps: Sequence[Step], pictures: Sequence[Pixels]) -> list[Pixels]:
    """What the kernel of a temporal op makes of pictures one after the other, tile by tile, each with its parameters.

    What it remembers lies between guards and is stale at first. Asserts that only the tile's part of the picture, and
    what is remembered of it, is written.
    """
    height, width = pictures[0].shape[:2]
    channels = 1 if pictures[0].ndim == 2 else 3
    op = steps[0].op
    assert isinstance(op, TemporalOp)
    made_channels = op.output(Shape(width, height, channels), steps[0].params).channels
    states = np.full((1 + width * height + 1, op.state_bytes(channels)), STALE, np.uint8)
    pitch = TILE_PX * made_channels + GUARD_BYTES
    results = []
    for number, (step, picture) in enumerate(zip(steps, pictures, strict=True)):
        source = np.ascontiguousarray(picture)
        params = ctypes.create_string_buffer(op.constants(step.params), OP_BYTES)
        result = np.empty((height, width, made_channels), np.uint8)
        for y0 in range(0, height, TILE_ROWS):
            for x0 in range(0, width, TILE_PX):
                buffer = np.full((TILE_ROWS + 2, pitch), STALE, np.uint8)
                getattr(library, f"{op.name}_c{channels}")(
                    ctypes.c_void_p(source.ctypes.data), source.strides[0], _Size(width, height),
                    ctypes.c_void_p(buffer[1].ctypes.data), pitch, x0, y0, TILE_PX, TILE_ROWS,
                    ctypes.c_void_p(states[1].ctypes.data), number == 0, params,
                )  # fmt: skip
                rows, columns = min(TILE_ROWS, height - y0), min(TILE_PX, width - x0)
                made = buffer[1 : 1 + rows, : columns * made_channels]
                result[y0 : y0 + rows, x0 : x0 + columns] = made.reshape(rows, columns, made_channels)
                made[...] = STALE
                assert (buffer == STALE).all(), "written beside the tile"
        assert (states[[0, -1]] == STALE).all(), "written beside what is remembered"
        results.append(result[:, :, 0] if made_channels == 1 else result)
    return results
