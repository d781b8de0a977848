"""CUDA events that are recorded and read without the GIL: CuPy keeps it, and the driver may make the caller wait.

Threads that launch work share one lock of the driver. Whoever waits for it with Python's lock in hand holds up all
others, and with dozens of cameras those are what the driver's lock waits for (measured: kernels/TUNING.md).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from kernels.driver_calls import INVALID_CONTEXT, call, status

if TYPE_CHECKING:
    from cupy.cuda import Event, Stream


def record(event: Event, stream: Stream) -> None:
    """Let ``event`` be reached once everything before it in the stream is done. Raises DeviceFailedError."""
    call("cuEventRecord", ctypes.c_void_p(event.ptr), ctypes.c_void_p(stream.ptr))


def elapsed_ns(start: Event, end: Event) -> int:
    """Nanoseconds between two events that were reached, to some 0.5 µs. Raises what CuPy raises."""
    milliseconds = ctypes.c_float()
    arguments = (ctypes.byref(milliseconds), ctypes.c_void_p(start.ptr), ctypes.c_void_p(end.ptr))
    code = status("cuEventElapsedTime", *arguments)
    if code == INVALID_CONTEXT:  # a thread that never used the device; CuPy's call makes it one that did
        from cupy.cuda import get_elapsed_time

        return int(get_elapsed_time(start, end) * 1e6)
    if code != 0:
        call("cuEventElapsedTime", *arguments)
    return int(milliseconds.value * 1e6)
