"""Moves bytes between host and device in each kind of memory that CUDA has. Among the files that may call CuPy.

All results of CUDA calls are checked: CuPy raises, and ``cuda_errors`` says which call it was. Every buffer is owned by
an ExitStack before the next is made.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.bench_cuda import CudaGpu
from kernels.compiler import compile_cubin
from kernels.device import CudaDevice, cuda_errors
from kernels.driver_calls import prefetch
from kernels.errors import DeviceFailedError, OutOfMemoryError
from kernels.image import Pixels, align_up
from kernels.memory import (
    CUDA_ERROR_MEMORY_ALLOCATION,
    DeviceMemory,
    Ledger,
    MappedMemory,
    PageMemory,
    RegisteredMemory,
)
from kernels.numa import preferring
from kernels.proof import attribute
from kernels.transfer import POISON, Pattern, Peak, Transfer
from kernels.transfer_host import free_host_bytes
from kernels.transfer_plan import CUDA_WAYS, Direction, Memory, Room, Way, chunks

MARGIN_BYTES = 256 << 20
SHM_MARGIN_BYTES = 16 << 20
PEAK_BYTES = 128 << 20
MOST_STREAMS = 8
THREADS = 256
BLOCKS = 4  # for each multiprocessor: enough loads in flight to fill the link
_SCRATCH_BYTES = 32 << 20

# Sixteen bytes a thread, next to each other over a warp: whole lines of 128 bytes. Four loads are on their way at once.
SOURCE = """
extern "C" __global__ void pinhole_move(const uint4* __restrict__ from, uint4* __restrict__ to, size_t nbytes) {
    size_t words = nbytes / 16, step = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < nbytes % 16)
        ((unsigned char*)to)[16 * words + i] = ((const unsigned char*)from)[16 * words + i];
    for (; i + 3 * step < words; i += 4 * step) {
        uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
        to[i] = a;
        to[i + step] = b;
        to[i + 2 * step] = c;
        to[i + 3 * step] = d;
    }
    for (; i < words; i += step) to[i] = from[i];
}
"""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Host memory: (nbytes,) uint8 at a page's start, and where a kernel finds it, if it sees such memory at all."""

    array: Pixels
    dev_ptr: int

    @property
    def ptr(self) -> int:
        return int(self.array.ctypes.data)


class CudaMachine:
    """See :class:`kernels.transfer.Machine`. ``max_pinned_bytes`` are never exceeded, registered memory included."""

    def __init__(self, device: CudaDevice, max_pinned_bytes: int, pinned_limit: str) -> None:
        from cupy.cuda import Stream, driver, function

        self.device = device
        device.activate()
        self._pinned = max_pinned_bytes, pinned_limit
        cubin = compile_cubin(SOURCE, device.architecture)
        with cuda_errors("cuModuleLoadData"):
            self._module = function.Module()
            self._module.load(cubin)
            self._function: int = self._module.get_function("pinhole_move").ptr
        with cuda_errors("cudaStreamCreate"):
            self.streams = [Stream(non_blocking=True) for _ in range(MOST_STREAMS)]
        self._launch = driver.launchKernel
        self._absent = absent_kinds(device.index)

    @property
    def ways(self) -> Sequence[Way]:
        return CUDA_WAYS

    def room(self) -> Room:
        from cupy.cuda import runtime

        with cuda_errors("cudaMemGetInfo"):
            free, total = runtime.memGetInfo()
        return Room(
            host_bytes=free_host_bytes(),
            pinned_bytes=self._pinned[0],
            shm_bytes=free_shm_bytes(),
            device_bytes=max(0, free - MARGIN_BYTES - total // 32),
            shared=self.device.integrated,
            absent=self._absent,
            pinned_limit=self._pinned[1],
        )

    def peak(self) -> Peak | None:
        room = self.room()
        most = 2 * PEAK_BYTES
        if most > min(room.host_bytes, room.pinned_bytes, room.device_bytes):
            return None
        gpu = CudaGpu(self.device)
        link = gpu.link()
        both_us = gpu.exchange(PEAK_BYTES, PEAK_BYTES).floor_us
        return Peak(link.in_gb_s, link.out_gb_s, PEAK_BYTES / both_us / 1e3)

    @contextmanager
    def hold(self, memory: Memory, nbytes: int, paired: bool) -> Iterator[CudaHold]:
        with ExitStack() as stack:
            hosts, taken_s = [], 0.0
            with preferring(self.device.numa_node):  # as slots are: the other node's memory is a longer way
                for _ in range(1 + paired):
                    buffer, seconds = _OWNERS[memory](stack, nbytes, self.device.ledger)
                    buffer.array[:] = POISON  # a page comes to be where it is first touched
                    hosts.append(buffer)
                    taken_s += seconds
            with cuda_errors("cudaMalloc"):
                devices = [stack.enter_context(DeviceMemory(nbytes, self.device.ledger)).ptr for _ in hosts]
            stack.callback(self._settle)  # nothing is freed under a copy or kernel that is still running
            yield CudaHold(self, hosts, devices, nbytes, taken_s)

    def _settle(self) -> None:
        for stream in self.streams:
            with cuda_errors("cudaStreamSynchronize"):
                stream.synchronize()

    def move(self, source: int, target: int, nbytes: int) -> None:
        """Copy by a kernel on the first stream, in 16-byte words; both pointers are aligned to them."""
        words = max(nbytes // 16, 1)
        blocks = min(-(-words // THREADS), BLOCKS * self.device.multiprocessors)
        args = (ctypes.c_uint64(source), ctypes.c_uint64(target), ctypes.c_uint64(nbytes))
        pointers = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        with cuda_errors("cuLaunchKernel"):
            self._launch(
                self._function, blocks, 1, 1, THREADS, 1, 1, 0, self.streams[0].ptr, ctypes.addressof(pointers), 0
            )


class CudaHold:
    """Host buffers of one kind and as many on the device. See :class:`kernels.transfer.Hold`.

    One direction: host 0 and device 0. Both: host 0 goes to device 0, and device 1, or by a kernel host 0, to host 1.
    """

    def __init__(
        self, machine: CudaMachine, hosts: list[Buffer], devices: list[int], nbytes: int, setup_s: float
    ) -> None:
        self.setup_s = setup_s
        self._machine = machine
        self._hosts, self._devices, self._nbytes = hosts, devices, nbytes
        self._patterns = Pattern(1), Pattern(2)
        self._arranged: Direction | None = None

    def transfer(self, way: Way) -> Transfer:
        """Ready, with its source in place."""
        host, device = self._hosts[0], self._devices[0]
        if way.direction != self._arranged:
            self._arrange(way.direction)
            self._arranged = way.direction
        if way.direction == "both":
            return self._both(way)
        if way.memory == "managed":
            return self._managed(way, host, device)
        run = self._one_way(way, host, device)
        if way.direction == "in":
            return Transfer(run, lambda: self._spoil_device(device), lambda: self._wrong_on_device(device))
        return Transfer(run, lambda: _spoil(host), lambda: self._patterns[1].first_wrong(host.array))

    def _arrange(self, direction: Direction) -> None:
        """The first pattern to what goes in, the second to what comes out."""
        if direction in ("in", "both"):
            self._patterns[0].fill(self._hosts[0].array)
        if direction in ("out", "both"):
            scratch = np.empty(min(self._nbytes, _SCRATCH_BYTES), np.uint8)
            for start in range(0, self._nbytes, _SCRATCH_BYTES):
                part = scratch[: min(_SCRATCH_BYTES, self._nbytes - start)]
                self._patterns[1].fill(part, start)
                _copy_in(self._devices[-1] + start, part.ctypes.data, part.nbytes)

    def _one_way(self, way: Way, host: Buffer, device: int) -> Callable[[], object]:
        machine, nbytes = self._machine, self._nbytes
        into = way.direction == "in"
        if way.how == "sync":
            copy = _copy_in if into else _copy_out
            target, source = (device, host.ptr) if into else (host.ptr, device)
            return lambda: copy(target, source, nbytes)
        if way.how == "kernel":
            source, target = (host.dev_ptr, device) if into else (device, host.dev_ptr)
            return lambda: self._by_kernel(source, target)
        parts = chunks(nbytes, way.streams)
        streams = machine.streams[: len(parts)]
        target, source = (device, host.ptr) if into else (host.ptr, device)
        pieces = [(target + o, source + o, n, s) for (o, n), s in zip(parts, streams, strict=True)]
        return lambda: _by_streams([(*piece[:3], into, piece[3]) for piece in pieces])

    def _by_kernel(self, source: int, target: int) -> None:
        self._machine.move(source, target, self._nbytes)
        _synchronize(self._machine.streams[0])

    def _both(self, way: Way) -> Transfer:
        (first, second), (into, out), n = self._hosts, self._devices, self._nbytes
        machine = self._machine

        def one_after_the_other() -> None:
            _copy_in(into, first.ptr, n)
            _copy_out(second.ptr, out, n)

        def both_engines() -> None:
            _by_streams(
                [(into, first.ptr, n, True, machine.streams[0]), (second.ptr, out, n, False, machine.streams[1])]
            )

        def spoil() -> None:
            self._spoil_device(into)
            _spoil(second)

        def first_wrong() -> int | None:
            wrong = self._patterns[1].first_wrong(second.array)
            return self._wrong_on_device(into) if wrong is None else wrong

        if way.how != "kernel":
            return Transfer(one_after_the_other if way.how == "sync" else both_engines, spoil, first_wrong)
        source, target = first.dev_ptr, second.dev_ptr
        return Transfer(
            lambda: self._by_kernel(source, target), spoil, lambda: self._patterns[0].first_wrong(second.array)
        )

    def _managed(self, way: Way, host: Buffer, device: int) -> Transfer:
        """The CPU writes all of it anew (or the GPU, on the way out) before each run, so that its pages are there.

        Where ConcurrentManagedAccess is 0 the CPU may touch it only while no kernel runs: every part waits.
        """
        stream, pointer, nbytes = self._machine.streams[0], host.ptr, self._nbytes
        prefetched, index = way.how == "prefetch", self._machine.device.index

        def fetch(to: int | None) -> None:
            if prefetched:
                prefetch(pointer, nbytes, to, stream.ptr)

        def into() -> None:
            fetch(index)
            self._by_kernel(pointer, device)

        def out() -> None:
            fetch(None)
            _synchronize(stream)
            int(host.array[:: mmap.PAGESIZE].max())

        if way.direction == "in":
            return Transfer(
                into,
                lambda: self._spoil_device(device),
                lambda: self._wrong_on_device(device),
                lambda: self._patterns[0].fill(host.array),
            )
        return Transfer(
            out,
            lambda: _spoil(host),
            lambda: self._patterns[1].first_wrong(host.array),
            lambda: self._by_kernel(device, pointer),
        )

    def _spoil_device(self, pointer: int) -> None:
        from cupy.cuda import runtime

        with cuda_errors("cudaMemset"):
            runtime.memset(pointer, POISON, self._nbytes)
            runtime.deviceSynchronize()

    def _wrong_on_device(self, pointer: int) -> int | None:
        scratch = np.empty(min(self._nbytes, _SCRATCH_BYTES), np.uint8)
        for start in range(0, self._nbytes, _SCRATCH_BYTES):
            part = scratch[: min(_SCRATCH_BYTES, self._nbytes - start)]
            _copy_out(part.ctypes.data, pointer + start, part.nbytes)
            if (wrong := self._patterns[0].first_wrong(part, start)) is not None:
                return wrong
        return None


def _spoil(host: Buffer) -> None:
    host.array[:] = POISON


def _copy_in(target: int, source: int, nbytes: int) -> None:
    from cupy.cuda import runtime

    with cuda_errors("cudaMemcpy"):
        runtime.memcpy(target, source, nbytes, runtime.memcpyHostToDevice)


def _copy_out(target: int, source: int, nbytes: int) -> None:
    from cupy.cuda import runtime

    with cuda_errors("cudaMemcpy"):
        runtime.memcpy(target, source, nbytes, runtime.memcpyDeviceToHost)


def _by_streams(pieces: Sequence[tuple[int, int, int, bool, Any]]) -> None:
    """(target, source, bytes, whether to the device, stream): all at once, and done when this returns."""
    from cupy.cuda import runtime

    kinds = runtime.memcpyDeviceToHost, runtime.memcpyHostToDevice
    with cuda_errors("cudaMemcpyAsync"):
        for target, source, nbytes, into, stream in pieces:
            runtime.memcpyAsync(target, source, nbytes, kinds[into], stream.ptr)
        for piece in pieces:
            piece[4].synchronize()


def _synchronize(stream: Any) -> None:
    with cuda_errors("cudaStreamSynchronize"):
        stream.synchronize()


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


_OWNERS: dict[Memory, Callable[[ExitStack, int, Ledger], Owned]] = {
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
