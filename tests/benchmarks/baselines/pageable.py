"""The same kernels in the same pipeline, but frames in ordinary memory and synchronous copies both ways.

This is where people start from: ``cudaMemcpy`` of the whole frame to the device, kernels, ``cudaMemcpy`` back.
"""

from __future__ import annotations

from kernels.device import Completion, CudaDevice, DoneNow, WaitMode, cuda_errors
from kernels.image import NO_STAMP, ImageView, Stamp
from kernels.memory import DeviceMemory, HostMemory, PageMemory
from kernels.op import OpParams
from kernels.plan import Plan, result_nbytes
from kernels.run_cuda import CudaExecutor


class PageableDevice(CudaDevice):
    """A CUDA device whose slots it cannot see."""

    memory = "pageable"

    def allocate_slot(self, nbytes: int) -> HostMemory:
        return PageMemory(nbytes, self.ledger)

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> PageableExecutor:
        self.activate()
        return PageableExecutor(self, plan, wait)


class PageableExecutor:
    """Copies in, runs the plan on device memory, copies out; done when ``submit`` returns."""

    def __init__(self, device: CudaDevice, plan: Plan, wait: WaitMode) -> None:
        self.plan = plan
        self._inner = CudaExecutor(device, plan, wait)
        self._source = DeviceMemory(plan.source.nbytes, device.ledger)
        self._result = DeviceMemory(result_nbytes(plan), device.ledger)

    def submit(
        self, source: ImageView, result: ImageView, params: tuple[OpParams, ...], stamp: Stamp = NO_STAMP
    ) -> Completion:
        from cupy.cuda import runtime

        spec = self.plan.source
        first = spec.offsets[0]
        with cuda_errors("cudaMemcpy"):
            runtime.memcpy(
                self._source.ptr + first,
                source.buffer.ctypes.data + first,
                spec.nbytes - first,
                runtime.memcpyHostToDevice,
            )
        on_device = (
            ImageView(source.spec, source.buffer, self._source.ptr),
            ImageView(result.spec, result.buffer, self._result.ptr),
        )
        self._inner.submit(*on_device, params, stamp).wait()
        with cuda_errors("cudaMemcpy"):
            runtime.memcpy(
                result.buffer.ctypes.data, self._result.ptr, self.plan.result.nbytes, runtime.memcpyDeviceToHost
            )
        return DoneNow()

    def close(self) -> None:
        self._inner.close()
        self._source.close()
        self._result.close()
