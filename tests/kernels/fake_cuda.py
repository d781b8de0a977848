"""CUDA's memory calls on ordinary memory: what is allocated, copied and freed, and an error wherever a test wants one.

It stands in for ``cupy.cuda.runtime`` and what else the benchmark of transfers takes from CuPy. Host, device and
managed memory are the process's own, so each copy really copies, and whatever is not copied is not there.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernels import transfer_cuda, transfer_memory
from kernels.device import CudaDevice, cuda_errors
from kernels.memory import Ledger


class CudaError(RuntimeError):
    """As CuPy's: a code, and a text that begins with its name."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"cudaErrorOfATest{status}: out of something")


class Runtime:
    """See the module. ``fail_at`` is the number of the call that fails, ``calls`` what was called, in order."""

    CUDARuntimeError = CudaError
    memcpyHostToDevice = 1  # noqa: N815 - CUDA's names
    memcpyDeviceToHost = 2  # noqa: N815
    hostAllocPortable = 1  # noqa: N815
    hostAllocMapped = 2  # noqa: N815
    names = (
        "HostRegisterSupported", "ManagedMemory", "ConcurrentManagedAccess", "PageableMemoryAccess", "Integrated",
    )  # fmt: skip

    def __init__(self, device_bytes: int = 1 << 40) -> None:
        self.calls: list[str] = []
        self.fail_at: int | None = None
        self.status = 2
        self.attributes = dict.fromkeys(self.names, 1)
        self.device_bytes = device_bytes
        self.loses_last_byte = False
        self._held: dict[int, Any] = {}
        self._kinds: dict[int, str] = {}
        self.registered: set[int] = set()
        for number, name in enumerate(self.names):
            setattr(self, f"cudaDevAttr{name}", number)

    def held(self) -> list[str]:
        """Kinds of what is allocated or registered now."""
        return sorted([*self._kinds.values(), *("registered" for _ in self.registered)])

    def called(self, name: str) -> None:
        self.calls.append(name)
        if self.fail_at is not None and len(self.calls) == self.fail_at:
            raise CudaError(self.status)

    def _take(self, kind: str, nbytes: int) -> int:
        self.called(kind)
        memory = ctypes.create_string_buffer(nbytes + 4096)
        pointer = ctypes.addressof(memory) + -ctypes.addressof(memory) % 4096
        self._held[pointer], self._kinds[pointer] = memory, kind
        return pointer

    def _give(self, name: str, pointer: int, *kinds: str) -> None:
        self.called(name)
        assert self._kinds.pop(pointer) in kinds, "freed by another call than it was made by"
        del self._held[pointer]

    def malloc(self, nbytes: int) -> int:
        return self._take("malloc", nbytes)

    def hostAlloc(self, nbytes: int, flags: int) -> int:  # noqa: N802
        assert flags == 3
        return self._take("hostAlloc", nbytes)

    def mallocManaged(self, nbytes: int) -> int:  # noqa: N802
        return self._take("mallocManaged", nbytes)

    def free(self, pointer: int) -> None:
        self._give("free", pointer, "malloc", "mallocManaged")

    def freeHost(self, pointer: int) -> None:  # noqa: N802
        self._give("freeHost", pointer, "hostAlloc")

    def hostRegister(self, pointer: int, nbytes: int, flags: int) -> None:  # noqa: N802
        self.called("hostRegister")
        assert pointer % 4096 == 0
        assert flags == 3
        self.registered.add(pointer)

    def hostUnregister(self, pointer: int) -> None:  # noqa: N802
        self.called("hostUnregister")
        self.registered.remove(pointer)

    def pointerGetAttributes(self, pointer: int) -> Any:  # noqa: N802
        self.called("pointerGetAttributes")
        return SimpleNamespace(devicePointer=pointer)

    def memcpy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self.called("memcpy")
        assert kind in (1, 2)
        ctypes.memmove(target, source, nbytes)

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:  # noqa: N802
        self.called(f"memcpyAsync {stream}")
        ctypes.memmove(target, source, nbytes - self.loses_last_byte)

    def memset(self, pointer: int, value: int, nbytes: int) -> None:
        self.called("memset")
        ctypes.memset(pointer, value, nbytes)

    def prefetch(self, pointer: int, nbytes: int, device: int | None, stream: int) -> None:
        with cuda_errors("cuMemPrefetchAsync"):
            self.called(f"prefetch {device}")
        assert self._kinds[pointer] == "mallocManaged"

    def deviceSynchronize(self) -> None:  # noqa: N802
        self.called("deviceSynchronize")

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return self.device_bytes, self.device_bytes

    def deviceGetAttribute(self, number: int, index: int) -> int:  # noqa: N802
        return self.attributes[self.names[number]]

    def launch(self, function: int, *rest: Any) -> None:
        """pinhole_move(from, to, nbytes); its arguments are behind an array of pointers."""
        self.called("launchKernel")
        pointers = (ctypes.c_void_p * 3).from_address(rest[8])
        source, target, nbytes = (ctypes.c_uint64.from_address(cast(int, p)).value for p in pointers)
        assert source % 16 == target % 16 == 0
        ctypes.memmove(target, source, nbytes)


class FakeStream:
    """Whatever is given to it is done at once."""

    made = 0

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking
        FakeStream.made += 1
        self.ptr = FakeStream.made

    def synchronize(self) -> None:
        return None


class FakeModule:
    def load(self, cubin: bytes) -> None:
        assert cubin

    def get_function(self, name: str) -> Any:
        assert name == "pinhole_move"
        return SimpleNamespace(ptr=1)


def fake_cuda(monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> CudaDevice:
    """A device over ``runtime``, which takes CuPy's place until the test ends."""
    import cupy.cuda

    monkeypatch.setattr(cupy.cuda, "runtime", runtime)
    monkeypatch.setattr(cupy.cuda, "Stream", FakeStream)
    driver = SimpleNamespace(launchKernel=runtime.launch, CUDADriverError=CudaError)
    monkeypatch.setattr(cupy.cuda, "driver", driver)
    monkeypatch.setattr(cupy.cuda, "function", SimpleNamespace(Module=FakeModule))
    for module in (transfer_cuda, transfer_memory):
        monkeypatch.setattr(module, "prefetch", runtime.prefetch)
    device = SimpleNamespace(
        index=0,
        architecture="90",
        integrated=False,
        multiprocessors=2,
        numa_node=None,
        ledger=Ledger(),
        activate=lambda: None,
    )
    return cast(CudaDevice, device)
