"""One view of a camera's frames, made and encoded on the device: nothing but the encoded bytes crosses the link."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kernels.chain import Chain, make_chain
from kernels.device import CudaDevice, cuda_errors
from kernels.errors import InputError
from kernels.formats import GRAY8
from kernels.image import AnyView, DeviceView, ImageSpec
from kernels.memory import DeviceMemory
from kernels.plan import chain_params, make_plan, result_nbytes
from pipeline.encoders.base import DeviceCoder, DeviceEncoder
from pipeline.lease import ReadLease
from pipeline.scaling import scaled_size

if TYPE_CHECKING:
    from kernels.run_cuda import CudaExecutor


class DeviceRendition:
    """Results (or, ``of_source``, what the camera wrote) at one width, encoded. One thread at a time.

    Holds a coder, and where pictures have to be scaled or converted first an executor for that with its result.
    """

    def __init__(self, device: CudaDevice, encoder: DeviceEncoder, *, of_source: bool, width: int | None) -> None:
        self._device, self._encoder = device, encoder
        self._of_source, self._width = of_source, width
        self._activated_in = -1
        self._coder: DeviceCoder | None = None
        self._view: _View | None = None

    def encode(self, lease: ReadLease, quality: int) -> tuple[bytes, ImageSpec]:
        """A frame's bytes, and the picture that was scaled. Blocks until it is done, so the lease may go then.

        The first picture of a size takes as long as the compiler needs where it has to be scaled or converted.

        Raises:
            InputError: the frame is nowhere where the device sees it.
            CompileError, DeviceFailedError, OutOfMemoryError
        """
        if self._activated_in != (thread := threading.get_ident()):
            self._device.activate()
            self._activated_in = thread
        if self._coder is None:
            self._coder = self._encoder.open(self._device)
        picture = self._picture(lease)
        spec = picture.spec
        size = scaled_size(spec.width, spec.height, self._width)
        direct = not self._of_source and spec.format in self._encoder.formats and size == (spec.width, spec.height)
        if direct and isinstance(picture, DeviceView):
            return self._coder.encode(picture, quality), spec
        view = self._view
        if view is None or view.source != spec:
            self._close_view()
            view = self._view = _View(self._device, self._encoder, spec, size, on_device=not self._of_source)
        return view.encode(picture, self._coder, quality), spec

    def _picture(self, lease: ReadLease) -> AnyView:
        if self._of_source:
            return lease.source
        if (picture := lease.device_result) is None:
            raise InputError("picture", "the result is in memory that the device does not see", "a slot's")
        return picture

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    def close(self) -> None:
        """Release everything; idempotent."""
        self._device.activate()
        self._close_view()
        if self._coder is not None:
            self._coder.close()
            self._coder = None


class _View:
    """Scales and converts pictures of one specification into device memory of its own."""

    def __init__(
        self, device: CudaDevice, encoder: DeviceEncoder, source: ImageSpec, size: tuple[int, int], on_device: bool
    ) -> None:
        self.source = source
        chain = Chain()
        if size != (source.width, source.height):
            params = {"width": size[0], "height": size[1], "interpolation": "area"}
            chain = make_chain([{"op": "resize", "params": params}])
        target = GRAY8 if source.format.channels == 1 else encoder.planes
        plan = make_plan(chain, source, target)
        self._params = chain_params(chain)
        with ExitStack() as stack:
            self._executor: CudaExecutor = device.make_view_executor(plan, on_device)
            stack.callback(self._executor.close)
            with cuda_errors("cudaMalloc"):
                self._memory = DeviceMemory(result_nbytes(plan), device.ledger)
            stack.pop_all()
        self.result = DeviceView(plan.result, self._memory.ptr)

    def encode(self, picture: AnyView, coder: DeviceCoder, quality: int) -> bytes:
        completion = self._executor.submit(picture, self.result, self._params)
        try:
            return coder.encode(self.result, quality, self._executor.stream)
        finally:
            completion.wait()
            completion.gpu_ns()  # lets its events go

    def close(self) -> None:
        try:
            self._executor.close()
        finally:
            self._memory.close()
