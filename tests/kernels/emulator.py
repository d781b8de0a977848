"""A CUDA device made of the processor: the executor runs as it is, on a ``cupy.cuda`` whose kernels are C++.

What it finds without a GPU: wrong pixels, indices and hand-overs, missing barriers (threads run in another order each
frame), reads and writes behind buffers and shared memory, misaligned words, overflow. What it does not: the memory
model, and anything about time.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernels.codegen import headers
from kernels.crossing import IN_PLACE
from kernels.device import CudaDevice, Device, WaitMode
from kernels.image import DeviceView, ImageView
from kernels.memory import HostMemory, Ledger, PageMemory
from kernels.plan import Plan
from kernels.run_cuda import CudaExecutor
from kernels.strategies import DeviceTraits

_LOADS = [
    f'asm volatile("ld.acquire.{scope}.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");'
    for scope in ("gpu", "sys")
] + ['asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");']
_STORE = 'asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");'
_SHARED = "extern __shared__ __align__(16) uint8 shared_memory[];"
_libc = ctypes.CDLL(None, use_errno=True)


def build(compiler: str, folder: Path, source: str) -> ctypes.CDLL:
    """The library of a plan's CUDA text, compiled once for each text; with the undefined-behaviour sanitizer."""
    library = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        (folder / "pinhole").mkdir(exist_ok=True)
        for name, text in headers().items():
            host = text.replace(_SHARED, "").replace(_STORE, "*address = value;")
            for load in _LOADS:
                host = host.replace(load, "value = *address;")
            (folder / name).write_text(host, encoding="utf-8")
        program = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8").replace("// PLAN\n", source)
        path = library.with_suffix(".cpp")
        path.write_text(program, encoding="utf-8")
        sanitizer = ["-fsanitize=undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=undefined"]
        options = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", *sanitizer, "-shared", "-fPIC", f"-I{folder}"]
        subprocess.run([compiler, *options, "-o", str(library), str(path)], check=True)
    return ctypes.CDLL(str(library))


class Guarded:
    """Memory that ends at a page which nobody may touch."""

    def __init__(self, nbytes: int) -> None:
        page = mmap.PAGESIZE
        room = -(-nbytes // page) * page
        self._map = mmap.mmap(-1, room + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if _libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
        self.ptr = start + room - nbytes
        # What it holds at first is as stale as a GPU's.
        ctypes.memset(self.ptr, 0x5A, nbytes)


class _Error(Exception):
    status = 0


def fake_cuda(load: Callable[[bytes], ctypes.CDLL], launched: list[int]) -> ModuleType:
    """What :mod:`kernels.run_cuda` and :mod:`kernels.memory` use of ``cupy.cuda``; each launch is noted by its grid.

    Copies and words that are written on other streams come while a kernel runs, as late as it lets them.
    """
    memory: dict[int, Guarded] = {}

    def malloc(nbytes: int) -> int:
        block = Guarded(-(-nbytes // 16) * 16)
        memory[block.ptr] = block
        return block.ptr

    streams: list[Stream] = []

    class Stream:
        def __init__(self, **_: object) -> None:
            self.queue: list[tuple[int, int, int]] = []  # copies: to, from (0: a word), bytes or value
            self.behind: list[Stream] = []  # whose work this stream's goes behind
            self.ptr = len(streams)
            streams.append(self)

        def synchronize(self) -> None:
            behind, self.behind = self.behind, []
            for other in behind:
                other.synchronize()
            for to, of, nbytes in self.queue:
                if of:
                    ctypes.memmove(to, of, nbytes)
                else:
                    ctypes.c_uint32.from_address(to).value = nbytes
            self.queue.clear()

        def wait_event(self, event: Event) -> None:
            if event.stream is not None:
                self.behind.append(event.stream)

    class Event:
        def __init__(self, **_: object) -> None:
            self.stream: Stream | None = None

        def record(self, stream: Stream) -> None:
            self.stream = stream

        def synchronize(self) -> None:
            if self.stream is not None:
                self.stream.synchronize()

        @property
        def done(self) -> bool:
            self.synchronize()
            return True

    class Function:
        def __init__(self, library: ctypes.CDLL) -> None:
            functions.append(library)
            self.ptr = len(functions) - 1

    class Module:
        def load(self, cubin: bytes) -> None:
            self._library = load(cubin)

        def get_function(self, name: str) -> Function:
            return Function(self._library)

    functions: list[ctypes.CDLL] = []

    def launch(function: int, *what: int) -> None:
        grid, shared_bytes, stream, arguments = what[0], what[6], what[7], what[8]
        streams[stream].synchronize()
        frame = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))[0]
        for other in streams:
            for to, of, nbytes in other.queue:
                functions[function].start_copy(ctypes.c_void_p(to), ctypes.c_void_p(of), ctypes.c_uint64(nbytes))
            other.queue.clear()
        functions[function].emulate(grid, shared_bytes, ctypes.c_void_p(frame), len(launched) % 3)
        launched.append(grid)

    def copy_rows(
        to: int, to_pitch: int, of: int, of_pitch: int, width: int, rows: int, _kind: int, stream: int
    ) -> None:
        assert width <= min(to_pitch, of_pitch)
        streams[stream].queue.extend((to + row * to_pitch, of + row * of_pitch, width) for row in range(rows))

    def namespace(**items: object) -> ModuleType:
        made = ModuleType("emulated")
        made.__dict__.update(items)
        return made

    runtime = namespace(
        malloc=malloc,
        free=lambda ptr: memory.pop(ptr),
        memsetAsync=lambda ptr, value, nbytes, _stream: ctypes.memset(ptr, value, nbytes),
        memcpyAsync=lambda to, of, nbytes, _kind, stream: streams[stream].queue.append((to, of, nbytes)),
        memcpy2DAsync=copy_rows,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        memGetInfo=lambda: (1 << 30, 1 << 30),
        CUDARuntimeError=_Error,
    )

    class KernelLaunch:
        def __init__(self, function: int, threads: int, frame: ctypes.Structure, stream: int) -> None:
            self._function, self._stream = function, stream
            self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(frame))

        def __call__(self, blocks: int, shared_bytes: int) -> None:
            arguments = ctypes.addressof(self._arguments)
            launch(self._function, blocks, 1, 1, 0, 1, 1, shared_bytes, self._stream, arguments, 0)

    driver = namespace(
        KernelLaunch=KernelLaunch,
        funcSetAttribute=lambda *_: None,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        CUDADriverError=_Error,
    )

    def write_word(stream: int, address: int, value: int) -> None:
        # Behind the copy that it says has come.
        streams[stream].behind[-1].queue.append((address, 0, value))

    return namespace(
        write_word=write_word, Stream=Stream, Event=Event, function=namespace(Module=Module),
        driver=driver, runtime=runtime, get_elapsed_time=lambda _start, _end: 0.1,
    )  # fmt: skip


class _Slot(PageMemory):
    @property
    def dev_ptr(self) -> int:  # type: ignore[override]
        return int(self.array.ctypes.data)


class EmulatedDevice(CudaDevice):
    """As many multiprocessors as a test wants; ``change`` is put in each plan's place."""

    def __init__(self, multiprocessors: int = 1) -> None:
        Device.__init__(self)
        self.ledger = Ledger()
        self.index, self._pid, self.name, self.architecture = 0, os.getpid(), "emulated", "90"
        self.integrated, self.multiprocessors, self.shared_bytes = False, multiprocessors, 100 << 10
        self.dump_folder = None
        self.memory, self.driver = "zero_copy", 13000
        self.traits = DeviceTraits.of({"ConcurrentManagedAccess": 1}, 90, True)
        self.change: Callable[[Plan], Plan] | None = None
        self.crossing = IN_PLACE
        self.grids: list[int] = []

    def activate(self) -> None:
        return None

    def allocate_slot(self, nbytes: int) -> HostMemory:
        return _Slot(nbytes, self.ledger)

    def allocate_pinned(self, nbytes: int) -> HostMemory:
        return self.allocate_slot(nbytes)

    def fetch(self, result: DeviceView, into: ImageView) -> None:
        ctypes.memmove(into.address, result.dev_ptr, result.spec.nbytes)

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> CudaExecutor:
        return CudaExecutor(self, plan, wait, self.change, self.crossing)


def _check_word(_stream: int, address: int, value: int) -> None:
    """The kernel is over, so what a stream waits for must be there."""
    word = ctypes.c_uint32.from_address(address).value
    assert word == value, f"a stream waits for {value}, and {word} is there"


def emulate(monkeypatch: pytest.MonkeyPatch, compiler: str, folder: Path, multiprocessors: int = 1) -> EmulatedDevice:
    """Put the processor in the GPU's place until the test ends."""
    device = EmulatedDevice(multiprocessors)
    texts: dict[bytes, ctypes.CDLL] = {}

    def compiled(source: str, architecture: str) -> bytes:
        key = hashlib.sha256(source.encode()).digest()
        texts[key] = build(compiler, folder, source)
        return key

    cuda = fake_cuda(texts.__getitem__, device.grids)
    package = ModuleType("cupy")
    package.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", package)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setattr("kernels.run_cuda._cubin", compiled)
    monkeypatch.setattr("kernels.cuda_copies.write_word", cuda.write_word)
    monkeypatch.setattr("kernels.driver_calls.KernelLaunch", cuda.driver.KernelLaunch)
    monkeypatch.setattr("kernels.cuda_events.record", lambda event, stream: event.record(stream))
    monkeypatch.setattr("kernels.cuda_events.elapsed_ns", lambda _start, _end: 100_000)
    monkeypatch.setattr("kernels.cuda_copies.wait_for_word", _check_word)
    return device
