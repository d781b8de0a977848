"""NVRTC 12 beside the NVRTC that CuPy uses: the last that compiles for Xavier (sm_72)."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path

from kernels.codegen import headers
from kernels.compiler import OPTIONS


@cache
def library() -> ctypes.CDLL | None:
    """The library of the package nvidia-cuda-nvrtc-cu12, or None where it is not installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(folder).glob("cuda_nvrtc/lib/libnvrtc.so.12"):
            # Its other half is looked for among what is loaded.
            ctypes.CDLL(str(next(path.parent.glob("libnvrtc-builtins.so.12.*"))), ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(path))
    return None


def compile_cubin(source: str, architecture: int) -> bytes:
    """As :func:`kernels.compiler.compile_cubin`. Raises AssertionError with the compiler's log."""
    nvrtc = library()
    assert nvrtc is not None
    texts = [text.encode() for text in headers().values()]
    names = [name.encode() for name in headers()]
    strings = ctypes.c_char_p * len(texts)
    program = ctypes.c_void_p()
    code = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"generated", len(texts), strings(*texts), strings(*names)
    )
    assert code == 0, f"nvrtcCreateProgram: {code}"
    try:
        options = [option.encode() for option in (*OPTIONS, f"-arch=sm_{architecture}")]
        code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        if code != 0:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise AssertionError(log.value.decode(errors="replace"))
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return cubin.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
