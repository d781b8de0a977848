"""Owners of each kind of host memory that transfers are measured in, and what a device lacks of it.

Among the files that may call CuPy. Each owner is on the caller's ExitStack before it is given away.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from kernels.device import cuda_errors
from kernels.driver_calls import prefetch
from kernels.errors import DeviceFailedError, OutOfMemoryError
from kernels.image import Pixels, align_up
from kernels.memory import CUDA_ERROR_MEMORY_ALLOCATION, Ledger, MappedMemory, PageMemory, RegisteredMemory
from kernels.proof import attribute
from kernels.transfer import POISON
from kernels.transfer_host import free_host_bytes
from kernels.transfer_plan import Memory

SHM_MARGIN_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Buffer:
    """Host memory: (nbytes,) uint8 at a page's start, and where a kernel finds it, if it sees such memory at all."""

    array: Pixels
    dev_ptr: int

    @property
    def ptr(self) -> int:
        return int(self.array.ctypes.data)


Owned = tuple[Buffer, float]  # and how many seconds allocating or registering took


def _pageable(stack: ExitStack, nbytes: int, ledger: Ledger) -> Owned:
    began = time.perf_counter()
    memory = stack.enter_context(PageMemory(nbytes, ledger))
    return Buffer(memory.array, memory.array.ctypes.data), time.perf_counter() - began


def _pinned(stack: ExitStack, nbytes: int, ledger: Ledger) -> Owned:
    began = time.perf_counter()
    with cuda_errors("cudaHostAlloc"):
        memory = stack.enter_context(MappedMemory(nbytes, ledger))
    return Buffer(memory.array, memory.dev_ptr), time.perf_counter() - began


def _numpy(stack: ExitStack, nbytes: int, ledger: Ledger) -> Owned:
    pages = np.empty(align_up(nbytes, mmap.PAGESIZE) + mmap.PAGESIZE, np.uint8)
    start = -pages.ctypes.data % mmap.PAGESIZE
    return _registered(stack, pages[start : start + nbytes], ledger)


def _shm(stack: ExitStack, nbytes: int, ledger: Ledger) -> Owned:
    path = f"/dev/shm/pinhole-transfer-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.unlink(path)  # nothing is left behind, however this ends
        os.posix_fallocate(descriptor, 0, nbytes)  # a full file system is said now, not by SIGBUS later
        shared = mmap.mmap(descriptor, nbytes)
    except OSError as error:
        raise OutOfMemoryError("shared memory (/dev/shm)", nbytes, free_shm_bytes(), "lower --sizes") from error
    finally:
        os.close(descriptor)
    return _registered(stack, np.frombuffer(shared, np.uint8), ledger)


def _registered(stack: ExitStack, array: Pixels, ledger: Ledger) -> Owned:
    """Memory that exists already, its pages touched: what is timed is cudaHostRegister alone."""
    array[:] = POISON
    began = time.perf_counter()
    with cuda_errors("cudaHostRegister"):
        memory = stack.enter_context(RegisteredMemory(array, ledger))
    return Buffer(array, memory.dev_ptr), time.perf_counter() - began


def _managed(stack: ExitStack, nbytes: int, ledger: Ledger) -> Owned:
    from cupy.cuda import runtime

    began = time.perf_counter()
    try:
        with cuda_errors("cudaMallocManaged"):
            pointer = int(runtime.mallocManaged(nbytes))
    except DeviceFailedError as error:
        if error.code != CUDA_ERROR_MEMORY_ALLOCATION:
            raise
        raise OutOfMemoryError("managed memory", nbytes, runtime.memGetInfo()[0], "lower --sizes") from error
    taken_s = time.perf_counter() - began
    ledger.add("managed", nbytes)

    def give_back() -> None:
        ledger.add("managed", -nbytes)
        with cuda_errors("cudaFree"):
            runtime.free(pointer)

    stack.callback(give_back)
    return Buffer(np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(pointer)), pointer), taken_s


OWNERS: Mapping[Memory, Callable[[ExitStack, int, Ledger], Owned]] = {
    "pageable": _pageable,
    "pinned": _pinned,
    "registered NumPy": _numpy,
    "registered shm": _shm,
    "managed": _managed,
}


def free_shm_bytes() -> int:
    """What /dev/shm has left, less a margin; 0 where there is none."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return 0
    if found.f_blocks == 0:  # no limit of its own
        return free_host_bytes()
    return max(0, found.f_bavail * found.f_frsize - SHM_MARGIN_BYTES)


def absent_kinds(index: int) -> dict[str, str]:
    """By ``Way.kinds`` what this device lacks, and why (CUDA runtime API, "cudaDeviceAttr")."""
    absent: dict[str, str] = {}
    if not (attribute("PageableMemoryAccess", index) and attribute("Integrated", index)):
        # A discrete GPU may see it too, by page faults: as managed memory that is touched first.
        absent["pageable, kernel"] = (
            "no integrated GPU that sees pageable memory (PageableMemoryAccess), as Thor's does"
        )
    if not attribute("HostRegisterSupported", index):
        reason = "this device cannot register host memory (HostRegisterSupported is 0)"
        absent |= {"registered NumPy": reason, "registered shm": reason}
    if not attribute("ManagedMemory", index):
        absent["managed"] = "this device has no managed memory (ManagedMemory is 0)"
    elif not attribute("ConcurrentManagedAccess", index):
        absent["prefetch"] = "this device does not prefetch managed memory (ConcurrentManagedAccess is 0)"
    elif (trouble := _prefetch_trouble(index)) is not None:
        absent["prefetch"] = f"managed memory is not prefetched here: {trouble}"
    return absent


def _prefetch_trouble(index: int) -> str | None:
    """What CUDA says to one page prefetched there and back."""
    from cupy.cuda import runtime

    with ExitStack() as stack:
        buffer, _ = _managed(stack, mmap.PAGESIZE, Ledger())
        buffer.array[:] = POISON
        try:
            for place in (index, None):
                prefetch(buffer.ptr, mmap.PAGESIZE, place, 0)
                with cuda_errors("cudaDeviceSynchronize"):
                    runtime.deviceSynchronize()
        except AttributeError as error:
            return str(error)
        except DeviceFailedError as error:
            if error.sticky:
                raise
            return str(error)
    return None
