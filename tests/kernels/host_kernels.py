"""Compiles the kernels of pixel ops as plain C++, so that a machine without a GPU runs their own text.

One thread after the other does what a block's threads do together: pixel kernels share nothing and never wait. With the
undefined-behaviour sanitizer, so that an overflow or a misaligned word ends the process.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from kernels.chain import Chain, Step
from kernels.codegen import headers
from kernels.image import ImageView, Pixels, Shape
from kernels.op import PixelOp
from kernels.plan import Plan, make_plan
from kernels.registry import all_ops
from kernels.run_cuda import _PIXEL_TILE_PX, _PIXEL_TILE_ROWS, _THREADS, _PixelArgs
from tests.kernels.cases import GUARD_BYTES, STALE, SourceCase, random_source

PIXEL_OPS = {name: op for name, op in all_ops().items() if isinstance(op, PixelOp)}

_PRELUDE = """
#include <algorithm>
using std::max;
using std::min;
#define __device__
#define __forceinline__ inline
struct uint4 { unsigned x, y, z, w; };
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcs(T* address, T value) { *address = value; }
struct Index { unsigned x, y; };
static Index threadIdx, blockIdx;
"""


_HEADERS = ("common", "pixel", "resample")


def build(compiler: str, folder: Path) -> ctypes.CDLL:
    """A library with ``NAME_cCHANNELS(args, blocks_across, blocks_down)`` for each pixel op."""
    text = _PRELUDE + "".join(
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
extern "C" void {name}_c{channels}(const PixelArgs<{name}_params>* args, unsigned across, unsigned down) {{
  const auto function = [](Picture<{channels}> in, int x, int y, Size size, const {name}_params& p, uint8* out) {{
    {name}<{channels}>(in, x, y, size, p, out);
  }};
  for (blockIdx.y = 0; blockIdx.y < down; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < across; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < {_THREADS}; ++threadIdx.x) pixel_op<{channels}, {made}>(*args, function);
}}
"""
    source, library = folder / "pixel_ops.cpp", folder / "pixel_ops.so"
    source.write_text(text, encoding="utf-8")
    sanitizer = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
    command = [compiler, "-std=c++17", "-O1", *sanitizer, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, step: Step, case: SourceCase, cuts: tuple[int, ...] = ()) -> tuple[Pixels, Pixels]:
    """The op's kernel on a random picture, in row bands that end at ``cuts``: the picture and the result.

    Asserts that nothing was written before or behind the result's rows.
    """
    plan: Plan = make_plan(Chain((step,)), case.spec())
    before, after = plan.pictures
    source = random_source(before)
    buffer = np.full(after.nbytes + 2 * GUARD_BYTES, STALE, np.uint8)
    result = ImageView(after, buffer[GUARD_BYTES:-GUARD_BYTES])
    constants = step.op.constants(step.params)
    for first, last in zip((0, *cuts), (*cuts, after.height), strict=True):
        args = _PixelArgs(
            src=source.buffer.ctypes.data, dst=result.buffer.ctypes.data,
            src_stride=before.strides[0], dst_stride=after.strides[0],
            src_size=(before.width, before.height), dst_size=(after.width, after.height),
            first_row=first, last_row=last,
        )  # fmt: skip
        ctypes.memmove(args.constants, constants, len(constants))
        blocks = -(-after.width // _PIXEL_TILE_PX), -(-(last - first) // _PIXEL_TILE_ROWS)
        getattr(library, f"{step.op.name}_c{before.format.channels}")(ctypes.byref(args), *blocks)
    guards = np.concatenate([buffer[:GUARD_BYTES], buffer[-GUARD_BYTES:]])
    assert (guards == STALE).all(), "written beside the result"
    return source.plane(0), result.plane(0)
