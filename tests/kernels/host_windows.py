"""Compiles the CUDA functions of stencils as plain C++, so that a machine without a GPU runs their own text.

Only what the ops' files hold: a function is called for one value after the other, over a picture that was extended by
its reflection beforehand. Tiles, borders and threads are the shared headers' part, which needs a GPU. With the
undefined-behaviour sanitizer; reading outside the window ends the process, too.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from kernels.chain import Step
from kernels.codegen import headers
from kernels.image import Pixels
from kernels.op import OpKind, PixelOp, SeparableOp, WindowOp
from kernels.registry import all_ops
from kernels.stages import OP_BYTES
from tests.kernels.oracles import reflect_101

WINDOW_OPS = {
    name: op
    for name, op in all_ops().items()
    if op.kind is OpKind.STENCIL and isinstance(op, (WindowOp, SeparableOp, PixelOp)) and op.cuda_source
}

_PRELUDE = """
#include <algorithm>
#include <cmath>
#include <cstdlib>
using std::max;
using std::min;
#define __device__
#define __forceinline__ inline
#define __noinline__
struct uint4 { unsigned x, y, z, w; };
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcs(T* address, T value) { *address = value; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
COMMON
struct Taps {
  uint16 tap[32];
};
struct Window {
  typedef int Sum;
  static constexpr int LEVEL = 1;
  const uint8* centre;
  int pitch, channels, radius;
  int operator()(int dx, int dy) const {
    if (max(abs(dx), abs(dy)) > radius) __builtin_trap();
    return centre[dy * pitch + dx * channels];
  }
};
struct Size {
  int width, height;
};
template <int CHANNELS>
struct Picture {
  const uint8* data;
  int stride, radius;
  Size size;
  const uint8* at(int x, int y) const {
    if (x < -radius || y < -radius || x >= size.width + radius || y >= size.height + radius) __builtin_trap();
    return data + y * stride + x * CHANNELS;
  }
};
template <class Params>
uint32 weighed(Window at, const Params& p) {
  uint32 sum = 0;
  for (int j = 0; j <= 2 * at.radius; ++j)
    for (int i = 0; i <= 2 * at.radius; ++i)
      sum += (uint32)p.taps.tap[j] * p.taps.tap[i] * at(i - at.radius, j - at.radius);
  return sum;
}
"""

_PIXEL = """
      const Size size{width, height};
      if (channels == 1) NAME<1>(Picture<1>{first, pitch, radius, size}, x, y, size, *p, out);
      else NAME<3>(Picture<3>{first, pitch, radius, size}, x, y, size, *p, out);"""
_VALUES = """
      for (int c = 0; c < channels; ++c) {
        const Window at{first + y * pitch + x * channels + c, pitch, channels, radius};
        out[c] = min(max(VALUE, 0), 255);
      }"""
_VALUE = {False: "NAME(at, *p)", True: "NAME(weighed(at, *p), at(0, 0), *p)"}


def build(compiler: str, folder: Path) -> ctypes.CDLL:
    """A library with ``run_NAME(first, pitch, channels, radius, width, height, params, out)`` for each of the ops."""
    text = _PRELUDE.replace("COMMON", headers()["pinhole/common.cuh"].replace("#pragma once", ""))
    for name, op in WINDOW_OPS.items():
        text += (
            op.cuda_source
            + f"""
extern "C" void run_{name}(const uint8* first, int pitch, int channels, int radius, int width, int height,
                           const {name}_params* p, uint8* out) {{
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x, out += channels) {{
      {_PIXEL if isinstance(op, PixelOp) else _VALUES}
    }}
}}
""".replace("NAME", name).replace("VALUE", _VALUE[isinstance(op, SeparableOp)].replace("NAME", name))
        )
    source, library = folder / "windows.cpp", folder / "windows.so"
    source.write_text(text, encoding="utf-8")
    sanitizer = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
    command = [compiler, "-std=c++17", "-O1", *sanitizer, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, step: Step, picture: Pixels) -> Pixels:
    """What the op's CUDA function makes of (H, W) or (H, W, 3) pixels."""
    height, width = picture.shape[:2]
    channels = picture[0, 0].size
    radius = step.op.radius(step.params)
    rows = reflect_101(np.arange(-radius, height + radius), height)
    columns = reflect_101(np.arange(-radius, width + radius), width)
    extended = np.ascontiguousarray(picture[rows][:, columns])
    pitch = (width + 2 * radius) * channels
    constants = step.op.constants(step.params)
    params = np.zeros(OP_BYTES, np.uint8)
    params[: len(constants)] = np.frombuffer(constants, np.uint8)
    result = np.empty_like(picture)
    first = extended.ctypes.data + radius * pitch + radius * channels
    getattr(library, f"run_{step.op.name}")(
        ctypes.c_void_p(first), pitch, channels, radius, width, height,
        ctypes.c_void_p(params.ctypes.data), ctypes.c_void_p(result.ctypes.data),
    )  # fmt: skip
    return result
