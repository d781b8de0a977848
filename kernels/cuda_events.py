"""CUDA events that are recorded and read by the driver's calls, as the rest of a frame is submitted."""

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
