"""Compiles the functions of global ops as plain C++: the tables that the GPU makes of a histogram, without a GPU.

With the undefined-behaviour sanitizer, as host_kernels.py.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernels.chain import Step
from kernels.codegen import headers
from kernels.image import Pixels
from kernels.op import LocalStatisticOp, StatisticOp
from kernels.registry import all_ops
from kernels.stages import OP_BYTES
from tests.kernels.host_kernels import PRELUDE

STATISTIC_OPS = {name: op for name, op in all_ops().items() if isinstance(op, StatisticOp)}
LOCAL_STATISTIC_OPS = {name: op for name, op in all_ops().items() if isinstance(op, LocalStatisticOp)}


def build(compiler: str, folder: Path) -> ctypes.CDLL:
    """A library with ``NAME_cCHANNELS(histogram, pixels, params, tables)``; regions have one channel."""
    common = headers()["pinhole/common.cuh"].replace("#pragma once", "")
    text = PRELUDE + common
    for name, op in STATISTIC_OPS.items():
        text += op.cuda_source
        for channels in (1, 3):
            text += f"""
extern "C" void {name}_c{channels}(const uint32* histogram, uint32 pixels, const {name}_params* p, uint8* tables) {{
  for (int i = 0; i < 256 * {channels}; ++i)
    tables[i] = saturate8({name}<{channels}>(histogram, pixels, i / 256, i % 256, *p));
}}
"""
    text += "struct Grid { int across, down; };"
    for name, local in LOCAL_STATISTIC_OPS.items():
        text += f"""
{local.cuda_source}
extern "C" void {name}_c1(const uint32* histogram, uint32 pixels, const {name}_params* p, uint8* table) {{
  for (int i = 0; i < 256; ++i) table[i] = saturate8({name}(histogram, pixels, i, *p));
}}
"""
    source, library = folder / "statistic_ops.cpp", folder / "statistic_ops.so"
    source.write_text(text, encoding="utf-8")
    sanitizer = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
    options = ["-std=c++17", "-O1", *sanitizer, "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, step: Step, histogram: npt.NDArray[np.int64]) -> Pixels:
    """The (C, 256) tables that the CUDA function makes of (C, 256) counts."""
    counts = histogram.astype(np.uint32)
    tables = np.empty(histogram.shape, np.uint8)
    params = ctypes.create_string_buffer(step.op.constants(step.params), OP_BYTES)
    function = getattr(library, f"{step.op.name}_c{len(histogram)}")
    pixels = ctypes.c_uint32(int(histogram[0].sum()))
    function(ctypes.c_void_p(counts.ctypes.data), pixels, params, ctypes.c_void_p(tables.ctypes.data))
    return tables
