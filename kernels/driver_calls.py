"""CUDA driver calls that CuPy lacks: streams write and wait for words of device memory; where managed memory lies.

None lets go of the GIL. All return within microseconds, and a thread that gives the GIL up and back where others want
it costs them some 12 µs: with fifteen such calls a frame, one process carries half as many (kernels/TUNING.md).

Thread-safe; nothing blocks. Sources: CUDA driver API, "Stream Memory Operations", "Stream Management" and "Unified
Addressing".
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from kernels.errors import DeviceFailedError

_CPU = -1
INVALID_CONTEXT = 201
PREFER_LOCATION, ACCESSED_BY = 3, 5
ATTACH_HOST, ATTACH_SINGLE = 2, 4


@cache
def _library() -> Any:
    return ctypes.PyDLL("libcuda.so.1")


def status(name: str, *arguments: Any) -> int:
    """What the driver answers; 0 is success."""
    return int(getattr(_library(), name)(*arguments))


def call(name: str, *arguments: Any) -> None:
    """Raise DeviceFailedError unless the driver does it."""
    if (code := status(name, *arguments)) != 0:
        from kernels.device import failure

        raise failure(name, code, _name(code))


def _name(code: int) -> str:
    text = ctypes.c_char_p()
    if _library().cuGetErrorName(code, ctypes.byref(text)) != 0 or text.value is None:
        return f"CUDA error {code}"
    return text.value.decode()


def can_wait_for_words(stream: int, address: int) -> bool:
    """True if streams can write and wait for words, tried with one; no attribute of a device tells."""
    try:
        write_word(stream, address, 1)
        wait_for_word(stream, address, 1)
    except (AttributeError, DeviceFailedError):
        return False
    return True


def write_word(stream: int, address: int, value: int) -> None:
    """Write ``value`` to device memory once everything before it in the stream is done and can be seen."""
    call(
        "cuStreamWriteValue32_v2", ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value),
        ctypes.c_uint(0),
    )  # fmt: skip


def wait_for_word(stream: int, address: int, value: int) -> None:
    """Let the stream wait until (int)(word - ``value``) >= 0: numbers may wrap."""
    call(
        "cuStreamWaitValue32_v2", ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value),
        ctypes.c_uint(0),
    )  # fmt: skip


class KernelLaunch:
    """Launches one kernel with one structure as its argument; CuPy's launch lets go of the GIL."""

    def __init__(self, function: int, threads: int, frame: ctypes.Structure, stream: int) -> None:
        """``frame`` is read at each launch, and must live as long as this."""
        self._frame = frame
        self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(frame))
        self._launch = _library().cuLaunchKernel
        one, block = ctypes.c_uint(1), ctypes.c_uint(threads)
        self._before = (ctypes.c_void_p(function),)
        self._between = (one, one, block, one, one)
        self._after = (ctypes.c_void_p(stream), self._arguments, None)

    def __call__(self, blocks: int, shared_bytes: int) -> None:
        """Raises DeviceFailedError."""
        sizes = (ctypes.c_uint(blocks), *self._between, ctypes.c_uint(shared_bytes))
        if (code := self._launch(*self._before, *sizes, *self._after)) != 0:
            from kernels.device import failure

            raise failure("cuLaunchKernel", code, _name(code))


def keep_on_host(address: int, nbytes: int, device: int) -> None:
    """Advise that managed memory stays in the host's and is mapped for ``device``.

    CuPy's ``memAdvise`` cannot name the CPU with CUDA 13. This is the driver's first version of the call, which stays.
    """
    for advice, where in ((PREFER_LOCATION, _CPU), (ACCESSED_BY, device)):
        call(
            "cuMemAdvise", ctypes.c_uint64(address), ctypes.c_size_t(nbytes), ctypes.c_int(advice), ctypes.c_int(where)
        )


def prefetch(address: int, nbytes: int, device: int | None, stream: int) -> None:
    """Let managed memory come to ``device``, None: to the host, in the stream's order.

    CuPy's ``memPrefetchAsync`` cannot name the CPU with CUDA 13 either; see :func:`keep_on_host`.
    """
    call(
        "cuMemPrefetchAsync", ctypes.c_uint64(address), ctypes.c_size_t(nbytes),
        ctypes.c_int(_CPU if device is None else device), ctypes.c_void_p(stream),
    )  # fmt: skip


def attach(stream: int, address: int, how: int) -> None:
    """Say that the stream alone (``ATTACH_SINGLE``), or the CPU (``ATTACH_HOST``), uses managed memory from here on."""
    call(
        "cuStreamAttachMemAsync", ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_size_t(0),
        ctypes.c_uint(how),
    )  # fmt: skip
