"""Moves bytes between host and device in each kind of memory that CUDA has. Among the files that may call CuPy.

All results of CUDA calls are checked: CuPy raises, and ``cuda_errors`` says which call it was. Every buffer is owned by
an ExitStack before the next is made (kernels/transfer_memory.py).
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from kernels.bench_cuda import CudaGpu
from kernels.compiler import compile_cubin
from kernels.device import CudaDevice, cuda_errors
from kernels.driver_calls import prefetch
from kernels.memory import DeviceMemory
from kernels.numa import preferring
from kernels.transfer import POISON, Pattern, Peak, Transfer
from kernels.transfer_host import free_host_bytes
from kernels.transfer_memory import OWNERS, Buffer, absent_kinds, free_shm_bytes
from kernels.transfer_plan import CUDA_WAYS, Direction, Memory, Room, Way, chunks

MARGIN_BYTES = 256 << 20
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
                    buffer, seconds = OWNERS[memory](stack, nbytes, self.device.ledger)
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

    def mover(self, source: int, target: int, nbytes: int) -> Callable[[], None]:
        """Copies by a kernel on the first stream, in 16-byte words, and waits; both pointers are aligned to them."""
        words = max(nbytes // 16, 1)
        blocks = min(-(-words // THREADS), BLOCKS * self.device.multiprocessors)
        args = (ctypes.c_uint64(source), ctypes.c_uint64(target), ctypes.c_uint64(nbytes))
        pointers = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        kept = args, pointers  # what the pointers point to lives as long as what this returns
        launch, function, stream = self._launch, self._function, self.streams[0]

        def move() -> None:
            with cuda_errors("cuLaunchKernel"):
                launch(function, blocks, 1, 1, THREADS, 1, 1, 0, stream.ptr, ctypes.addressof(kept[1]), 0)
                stream.synchronize()

        return move


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
                _copier(self._devices[-1] + start, part.ctypes.data, part.nbytes, into=True)()

    def _one_way(self, way: Way, host: Buffer, device: int) -> Callable[[], object]:
        machine, nbytes = self._machine, self._nbytes
        into = way.direction == "in"
        if way.how == "kernel":
            source, target = (host.dev_ptr, device) if into else (device, host.dev_ptr)
            return machine.mover(source, target, nbytes)
        target, source = (device, host.ptr) if into else (host.ptr, device)
        if way.how == "sync":
            return _copier(target, source, nbytes, into)
        parts = chunks(nbytes, way.streams)
        streams = machine.streams[: len(parts)]
        return _streamer([(target + o, source + o, n, into, s) for (o, n), s in zip(parts, streams, strict=True)])

    def _both(self, way: Way) -> Transfer:
        (first, second), (into, out), n = self._hosts, self._devices, self._nbytes
        streams = self._machine.streams
        copy_in, copy_out = _copier(into, first.ptr, n, into=True), _copier(second.ptr, out, n, into=False)

        def one_after_the_other() -> None:
            copy_in()
            copy_out()

        def spoil() -> None:
            self._spoil_device(into)
            _spoil(second)

        def first_wrong() -> int | None:
            wrong = self._patterns[1].first_wrong(second.array)
            return self._wrong_on_device(into) if wrong is None else wrong

        if way.how == "sync":
            return Transfer(one_after_the_other, spoil, first_wrong)
        if way.how == "streams":
            pieces = [(into, first.ptr, n, True, streams[0]), (second.ptr, out, n, False, streams[1])]
            return Transfer(_streamer(pieces), spoil, first_wrong)
        move = self._machine.mover(first.dev_ptr, second.dev_ptr, n)
        return Transfer(move, spoil, lambda: self._patterns[0].first_wrong(second.array))

    def _managed(self, way: Way, host: Buffer, device: int) -> Transfer:
        """The CPU writes all of it anew (or the GPU, on the way out) before each run, so that its pages are there.

        Where ConcurrentManagedAccess is 0 the CPU may touch it only while no kernel runs: every part waits.
        """
        stream, pointer, nbytes = self._machine.streams[0], host.ptr, self._nbytes
        prefetched, index = way.how == "prefetch", self._machine.device.index
        to_device, from_device = (self._machine.mover(*two, nbytes) for two in ((pointer, device), (device, pointer)))
        pages = host.array[:: mmap.PAGESIZE]

        def fetch(to: int | None) -> None:
            if prefetched:
                prefetch(pointer, nbytes, to, stream.ptr)

        def into() -> None:
            fetch(index)
            to_device()

        def out() -> None:
            fetch(None)
            _synchronize(stream)
            pages.max()

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
            from_device,
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
            _copier(part.ctypes.data, pointer + start, part.nbytes, into=False)()
            if (wrong := self._patterns[0].first_wrong(part, start)) is not None:
                return wrong
        return None


def _spoil(host: Buffer) -> None:
    host.array[:] = POISON


def _copier(target: int, source: int, nbytes: int, into: bool) -> Callable[[], None]:
    """One cudaMemcpy, to the device (``into``) or from it, until the bytes are there.

    From pageable memory cudaMemcpy returns once the driver has the bytes: other streams would still read old ones.
    """
    from cupy.cuda import runtime

    memcpy, kind = runtime.memcpy, runtime.memcpyHostToDevice if into else runtime.memcpyDeviceToHost

    def copy() -> None:
        with cuda_errors("cudaMemcpy"):
            memcpy(target, source, nbytes, kind)
            if into:
                runtime.deviceSynchronize()

    return copy


def _streamer(pieces: Sequence[tuple[int, int, int, bool, Any]]) -> Callable[[], None]:
    """Of (target, source, bytes, whether to the device, stream): all at once, and done when it returns."""
    from cupy.cuda import runtime

    memcpy, kinds = runtime.memcpyAsync, (runtime.memcpyDeviceToHost, runtime.memcpyHostToDevice)
    calls = [(target, source, nbytes, kinds[into], stream.ptr) for target, source, nbytes, into, stream in pieces]
    waits = [piece[4].synchronize for piece in pieces]

    def copy() -> None:
        with cuda_errors("cudaMemcpyAsync"):
            for call in calls:
                memcpy(*call)
            for wait in waits:
                wait()

    return copy


def _synchronize(stream: Any) -> None:
    with cuda_errors("cudaStreamSynchronize"):
        stream.synchronize()
