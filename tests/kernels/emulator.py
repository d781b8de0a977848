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
from kernels.device import CudaDevice, Device, WaitMode
from kernels.memory import HostMemory, Ledger, PageMemory
from kernels.plan import Plan
from kernels.run_cuda import CudaExecutor

_LOADS = 'asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");'
_SHARED = "extern __shared__ __align__(16) uint8 shared_memory[];"
_libc = ctypes.CDLL(None, use_errno=True)


def build(compiler: str, folder: Path, source: str) -> ctypes.CDLL:
    """The library of a plan's CUDA text, compiled once for each text; with the undefined-behaviour sanitizer."""
    library = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        (folder / "pinhole").mkdir(exist_ok=True)
        for name, text in headers().items():
            host = text.replace(_LOADS, "value = *address;").replace(_SHARED, "")
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
    """What :mod:`kernels.run_cuda` and :mod:`kernels.memory` use of ``cupy.cuda``; each launch is noted by its grid."""
    memory: dict[int, Guarded] = {}

    def malloc(nbytes: int) -> int:
        block = Guarded(-(-nbytes // 16) * 16)
        memory[block.ptr] = block
        return block.ptr

    class Stream:
        ptr = 0

        def __init__(self, **_: object) -> None: ...
        def synchronize(self) -> None: ...

    class Event:
        done = True

        def __init__(self, **_: object) -> None: ...
        def record(self, stream: Stream) -> None: ...
        def synchronize(self) -> None: ...

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
        grid, shared_bytes, arguments = what[0], what[6], what[8]
        frame = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))[0]
        functions[function].emulate(grid, shared_bytes, ctypes.c_void_p(frame), len(launched) % 3)
        launched.append(grid)

    def namespace(**items: object) -> ModuleType:
        made = ModuleType("emulated")
        made.__dict__.update(items)
        return made

    runtime = namespace(
        malloc=malloc,
        free=lambda ptr: memory.pop(ptr),
        memsetAsync=lambda ptr, value, nbytes, _stream: ctypes.memset(ptr, value, nbytes),
        memcpyAsync=lambda to, of, nbytes, _kind, _stream: ctypes.memmove(to, of, nbytes),
        memcpyHostToDevice=1,
        memGetInfo=lambda: (1 << 30, 1 << 30),
        CUDARuntimeError=_Error,
    )
    driver = namespace(
        launchKernel=launch,
        funcSetAttribute=lambda *_: None,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        CUDADriverError=_Error,
    )
    return namespace(
        Stream=Stream, Event=Event, function=namespace(Module=Module), driver=driver, runtime=runtime,
        get_elapsed_time=lambda _start, _end: 0.1,
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
        self.change: Callable[[Plan], Plan] | None = None
        self.grids: list[int] = []

    def activate(self) -> None:
        return None

    def allocate_slot(self, nbytes: int) -> HostMemory:
        return _Slot(nbytes, self.ledger)

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> CudaExecutor:
        return CudaExecutor(self, plan, wait, self.change)


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
    return device
