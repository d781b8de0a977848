"""The CUDA calls of the benchmark of chains. Among the files that may call CuPy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from kernels import run_cuda
from kernels.bench import Change, DeviceBytes, Exchange, Link, noise
from kernels.bench_case import Case, Ready
from kernels.bench_cupy import op_by_op
from kernels.device import CudaDevice, cuda_errors
from kernels.image import Pixels
from kernels.memory import DeviceMemory
from kernels.plan import Plan

_QUEUED = 20
_TURNS = 7
_LONG_BYTES = 128 << 20


def runtime_version() -> str | None:
    """``13.0``: the CUDA runtime that CuPy brings; None without CuPy. Makes no context."""
    try:
        from cupy.cuda import runtime
    except ImportError:
        return None
    major, minor = divmod(runtime.runtimeGetVersion() // 10, 100)
    return f"{major}.{minor}"


class CudaGpu:
    """A CUDA device as the benchmark needs it; see :class:`kernels.bench.Gpu`."""

    def __init__(self, device: CudaDevice) -> None:
        from cupy.cuda import Stream

        self.device = device
        device.activate()
        with cuda_errors("cudaStreamCreate"):
            self._streams = Stream(non_blocking=True), Stream(non_blocking=True)

    def executor(self, plan: Plan, change: Change | None = None) -> run_cuda.CudaExecutor:
        return run_cuda.CudaExecutor(self.device, plan, "spin", change)

    def forget_kernels(self) -> None:
        run_cuda._cubin.cache_clear()

    def memory(self, content: Pixels) -> DeviceBytes:
        from cupy.cuda import runtime

        memory = DeviceMemory(content.nbytes, self.device.ledger)
        with cuda_errors("cudaMemcpy"):
            runtime.memcpy(memory.ptr, content.ctypes.data, content.nbytes, runtime.memcpyHostToDevice)
        return memory

    def op_by_op(self, case: Case) -> Ready:
        import cupy
        from cupyx.scipy import ndimage

        source, result = case.plan.source, case.plan.result
        chain = op_by_op(case, cupy, ndimage)
        shape = source.plane_shape(0)
        frame = noise(int(np.prod(shape))).reshape(shape)
        out = np.empty(result.plane_shape(0), np.uint8)

        def run() -> None:
            made = chain(cupy.asarray(frame))
            if case.on_device:
                cupy.cuda.get_current_stream().synchronize()
            else:
                made.get(out=out)

        def close() -> None:
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()

        return Ready(run, close)

    def exchange(self, bytes_in: int, bytes_out: int) -> Exchange:
        from cupy.cuda import runtime

        with ExitStack() as stack:
            pinned_in, device_in = self._pair(stack, max(bytes_in, 1))
            pinned_out, device_out = self._pair(stack, max(bytes_out, 1))
            first, second = self._streams

            def both(times: int) -> None:
                for _ in range(times):
                    if bytes_in:
                        runtime.memcpyAsync(device_in, pinned_in, bytes_in, runtime.memcpyHostToDevice, first.ptr)
                    if bytes_out:
                        runtime.memcpyAsync(pinned_out, device_out, bytes_out, runtime.memcpyDeviceToHost, second.ptr)

            with cuda_errors("cudaMemcpyAsync"):
                both(_QUEUED)
                first.synchronize()
                second.synchronize()
                floor = statistics.median([self._queued_us(both, first, second) for _ in range(_TURNS)])
                alone = statistics.median([self._alone_us(both) for _ in range(10 * _TURNS)])
        return Exchange(floor, alone)

    def _queued_us(self, both: Callable[[int], None], first: Any, second: Any) -> float:
        """Microseconds for each of many exchanges that are queued; the second stream starts and ends with the first."""
        start, middle, end = self._event(), self._event(), self._event()
        start.record(first)
        second.wait_event(start)
        both(_QUEUED)
        middle.record(second)
        first.wait_event(middle)
        end.record(first)
        end.synchronize()
        return self._ms(start, end) * 1e3 / _QUEUED

    def _alone_us(self, both: Callable[[int], None]) -> float:
        first, second = self._streams
        ends = self._event(), self._event()
        began = time.perf_counter()
        both(1)
        ends[0].record(first)
        ends[1].record(second)
        ends[0].synchronize()
        ends[1].synchronize()
        return (time.perf_counter() - began) * 1e6

    def link(self) -> Link:
        from cupy.cuda import runtime

        with ExitStack() as stack:
            pinned, device = self._pair(stack, _LONG_BYTES)
            _, other = self._pair(stack, _LONG_BYTES)
            copies = (
                (device, pinned, runtime.memcpyHostToDevice),
                (pinned, device, runtime.memcpyDeviceToHost),
                (other, device, runtime.memcpyDeviceToDevice),
            )
            with cuda_errors("cudaMemcpyAsync"):
                into, out, within = (_LONG_BYTES / 1e6 / self._copy_ms(*copy) for copy in copies)
        return Link(into, out, 2 * within)

    def _copy_ms(self, dst: int, src: int, kind: int) -> float:
        from cupy.cuda import runtime

        stream, _ = self._streams
        taken = []
        for _ in range(4):
            start, end = self._event(), self._event()
            start.record(stream)
            runtime.memcpyAsync(dst, src, _LONG_BYTES, kind, stream.ptr)
            end.record(stream)
            end.synchronize()
            taken.append(self._ms(start, end))
        return statistics.median(taken[1:])

    def _pair(self, stack: ExitStack, nbytes: int) -> tuple[int, int]:
        """Addresses of as many bytes in pinned and in device memory."""
        pinned = self.device.allocate_slot(nbytes)
        stack.callback(pinned.close)
        device = DeviceMemory(nbytes, self.device.ledger)
        stack.callback(device.close)
        assert pinned.dev_ptr is not None
        return pinned.array.ctypes.data, device.ptr

    @staticmethod
    def _event() -> Any:
        from cupy.cuda import Event

        return Event(block=False)

    @staticmethod
    def _ms(start: Any, end: Any) -> float:
        from cupy.cuda import get_elapsed_time

        return float(get_elapsed_time(start, end))
