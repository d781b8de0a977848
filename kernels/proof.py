"""What the GPU can do, and the smallest proof of it: a kernel doubles 42 in each kind of memory, the CPU reads 84.

Run as ``python -m kernels.proof KIND`` by :mod:`kernels.probe`; prints one JSON object. Among the files that may call
CuPy.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.errors import DeviceFailedError, DeviceUnavailableError, PinholeError
from kernels.probe import Answer

BEFORE, AFTER = 42, 84
NBYTES = 4096  # one page: never more, as managed memory in quantity has hung GPUs
COUNT = NBYTES // 4

SOURCE = """
extern "C" __global__ void pinhole_double(int* values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= 2;
}
"""


class Absent(PinholeError):  # noqa: N818 - an absence is not an error
    """This machine has no such kind of memory."""


def prove_host() -> Answer:
    """The CPU's own proof, by the product's own path: a chain that doubles, over a picture of 42."""
    from kernels.device import HostDevice

    return _prove_chain(HostDevice(), "OpenCV")


def _prove_chain(device: Any, by: str) -> Answer:
    from kernels.chain import parse_chain
    from kernels.formats import BGR8
    from kernels.image import ImageSpec, ImageView
    from kernels.plan import chain_params, make_plan, result_nbytes, slot_source_spec

    chain = parse_chain("gain_offset(gain=2.0)")
    plan = make_plan(chain, slot_source_spec(ImageSpec.make(BGR8, 37, 29)))
    slot = device.allocate_slot(plan.source.nbytes)
    result = device.allocate_slot(result_nbytes(plan))
    try:
        slot.array[:] = BEFORE
        executor = device.make_executor(plan)
        try:
            source, target = (ImageView(s, m.array, m.dev_ptr) for s, m in ((plan.source, slot), (plan.result, result)))
            executor.submit(source, target, chain_params(chain)).wait()
            values = target.packed()
        finally:
            executor.close()
    finally:
        result.close()
        slot.close()
        device.close()
    return _judge(values, f"a chain on {by}, in a slot")


def _judge(values: Any, what: str) -> Answer:
    read = int(values[0]) if (values == values[0]).all() else int(values[values != AFTER][0])
    if (values == AFTER).all():
        return Answer("ok", f"{BEFORE} doubled is {AFTER}: {what}", AFTER)
    return Answer("failed", f"{BEFORE} doubled was {read}: {what}", read)


class _Gpu:
    """The first device with the doubling kernel on it."""

    def __init__(self) -> None:
        from cupy.cuda import function, runtime

        from kernels.compiler import compile_cubin
        from kernels.device import CudaDevice

        self.device = CudaDevice()
        self.device.activate()
        self._module = function.Module()
        self._module.load(compile_cubin(SOURCE, self.device.architecture, cache=False))
        self._function = self._module.get_function("pinhole_double").ptr
        self._synchronize = runtime.deviceSynchronize

    def double(self, dev_ptr: int) -> None:
        """Double ``COUNT`` integers behind the pointer; returns when the device is done."""
        from cupy.cuda import driver

        args = (ctypes.c_uint64(dev_ptr), ctypes.c_int(COUNT))
        pointers = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        driver.launchKernel(self._function, -(-COUNT // 128), 1, 1, 128, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
        self._synchronize()


def attribute(name: str, index: int = 0) -> int:
    """A device attribute by CUDA's name without its prefix; 0 where this CuPy or driver does not know it."""
    from cupy.cuda import runtime

    number = getattr(runtime, f"cudaDevAttr{name}", None)
    if number is None:
        return 0
    try:
        return int(runtime.deviceGetAttribute(number, index))
    except runtime.CUDARuntimeError:
        return 0


def _device_memory() -> Answer:
    from cupy.cuda import runtime

    gpu = _Gpu()
    values = np.full(COUNT, BEFORE, np.int32)
    pointer = runtime.malloc(NBYTES)
    runtime.memcpy(pointer, values.ctypes.data, NBYTES, runtime.memcpyHostToDevice)
    gpu.double(pointer)
    runtime.memcpy(values.ctypes.data, pointer, NBYTES, runtime.memcpyDeviceToHost)
    runtime.free(pointer)
    return _judge(values, "device memory (cudaMalloc), copied in and out")


def _mapped() -> Answer:
    from kernels.memory import Ledger, MappedMemory

    gpu = _Gpu()
    with MappedMemory(NBYTES, Ledger()) as memory:
        values = memory.array.view(np.int32)
        values[:] = BEFORE
        gpu.double(memory.dev_ptr)
        one = "one pointer for both" if memory.dev_ptr == memory.array.ctypes.data else "a pointer for each"
        return _judge(values.copy(), f"pinned, mapped memory (cudaHostAlloc), in place, {one}")


def _registered(values: Any, what: str) -> Answer:
    """``values`` is a page of host memory that exists already."""
    from cupy.cuda import runtime

    gpu = _Gpu()
    if not attribute("HostRegisterSupported"):
        raise Absent("this device cannot register host memory (cudaDevAttrHostRegisterSupported is 0)")
    values[:] = BEFORE
    address = values.ctypes.data
    runtime.hostRegister(address, NBYTES, 1 | 2)  # cudaHostRegisterPortable | cudaHostRegisterMapped
    try:
        gpu.double(runtime.pointerGetAttributes(address).devicePointer)
        return _judge(values.copy(), f"{what}, registered (cudaHostRegister), in place")
    finally:
        runtime.hostUnregister(address)


def _registered_numpy() -> Answer:
    pages = np.zeros(2 * NBYTES, np.uint8)
    start = -pages.ctypes.data % NBYTES
    return _registered(pages[start : start + NBYTES].view(np.int32), "a NumPy array")


def _registered_shm() -> Answer:
    path = f"/dev/shm/pinhole-probe-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.unlink(path)  # nothing is left behind, however this ends
        try:
            os.posix_fallocate(descriptor, 0, NBYTES)  # a full file system is said now, not by SIGBUS later
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise PinholeError(f"/dev/shm is full: {NBYTES} bytes cannot be had") from None
        shared = mmap.mmap(descriptor, NBYTES)
    finally:
        os.close(descriptor)
    return _registered(np.frombuffer(shared, np.int32), "POSIX shared memory")


def _managed() -> Answer:
    from cupy.cuda import runtime

    gpu = _Gpu()
    if not attribute("ManagedMemory"):
        raise Absent("this device has no managed memory (cudaDevAttrManagedMemory is 0)")
    pointer = runtime.mallocManaged(NBYTES)
    values = np.ctypeslib.as_array((ctypes.c_int32 * COUNT).from_address(pointer))
    values[:] = BEFORE
    gpu.double(pointer)  # waits: where ConcurrentManagedAccess is 0, the CPU may touch it only while no kernel runs
    answer = _judge(values.copy(), "managed memory (cudaMallocManaged), one page")
    del values
    runtime.free(pointer)
    return answer


def _chain() -> Answer:
    from kernels.device import CudaDevice

    device = CudaDevice()
    return _prove_chain(device, device.name)


def _nvrtc() -> Answer:
    from cupy.cuda import nvrtc

    from kernels.compiler import compile_cubin

    version = ".".join(map(str, nvrtc.getVersion()))
    size = len(compile_cubin(SOURCE, "90", cache=False))  # needs no GPU; every NVRTC from 12.0 on knows sm_90
    return Answer("ok", f"{version}, compiles", facts={"version": version, "cubin_bytes": size})


def _gpu() -> Answer:
    from kernels.device import CudaDevice

    try:
        device = CudaDevice()  # raises DeviceUnavailableError where there is none, whatever is installed
    except DeviceFailedError as error:  # the service falls back on the CPU then, and so there is none for it
        raise Absent(str(error)) from None
    from cupy.cuda import runtime

    free, total = runtime.memGetInfo()
    names = (
        "CanMapHostMemory", "HostRegisterSupported", "CanUseHostPointerForRegisteredMem", "ManagedMemory",
        "ConcurrentManagedAccess", "PageableMemoryAccess", "Integrated", "ComputeMode",
    )  # fmt: skip
    facts = {
        "name": device.name,
        "compute_capability": f"{device.architecture[:-1]}.{device.architecture[-1]}",
        "devices": runtime.getDeviceCount(),
        "cuda_driver": dotted(device.driver),
        "cuda_runtime": dotted(runtime.runtimeGetVersion()),
        "memory_bytes": total,
        "memory_free_bytes": free,
        "attributes": {name: attribute(name) for name in names},
    }
    return Answer("ok", device.name, facts=facts)


def dotted(version: int) -> str:
    """CUDA's own number as people write it: 12060 is 12.6."""
    return f"{version // 1000}.{version % 1000 // 10}"


PROBES: dict[str, Callable[[], Answer]] = {
    "gpu": _gpu,
    "nvrtc": _nvrtc,
    "host": prove_host,
    "device": _device_memory,
    "mapped": _mapped,
    "registered_numpy": _registered_numpy,
    "registered_shm": _registered_shm,
    "managed": _managed,
    "chain": _chain,
}


def answer(kind: str) -> Answer:
    """Run a probe in this process; what it raises becomes its answer."""
    try:
        return PROBES[kind]()
    except (Absent, DeviceUnavailableError, ImportError) as error:
        return Answer("absent", str(error))
    except Exception as error:  # the border of a process: CuPy, NVRTC and drivers raise what they like
        return Answer("failed", f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}")


def end_with(found: Answer) -> None:
    """Print the answer as JSON, for whoever started this process, and end it."""
    plain = {"status": found.status, "found": found.found, "read": found.read, "facts": found.facts}
    sys.stdout.write(json.dumps(plain) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the answer is out; a library's own end must not change it


if __name__ == "__main__":
    end_with(answer(sys.argv[1]))
