"""Owners of host and device memory. With :mod:`kernels.device`, the only file that calls CuPy's allocation API.

An owner releases in ``close()``, once, in any thread; using it afterwards raises; forgetting it is a ResourceWarning.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from kernels.driver_calls import keep_on_host
from kernels.errors import DeviceFailedError, MemoryClosedError, OutOfMemoryError
from kernels.image import PLANE_ALIGNMENT, Pixels, align_up

CUDA_ERROR_MEMORY_ALLOCATION = 2

# A container's memory limit: version 2 of control groups, and 1. Without one it is "max", or more than there is.
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

# Codes after which the context is gone (CUDA runtime API, "cudaError"): ECC, NVLink, illegal address, launch timeout,
# device assert, hardware stack error, illegal instruction, misaligned address, invalid address space, invalid pc,
# launch failure.
CUDA_STICKY_CODES = frozenset({214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719})


class Ledger:
    """Bytes held now, by kind (``pinned``, ``host``, ``device``). Thread-safe; never on the frame path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}

    def add(self, kind: str, nbytes: int) -> None:
        with self._lock:
            self._held[kind] = self._held.get(kind, 0) + nbytes

    def held(self, kind: str) -> int:
        """Bytes of that kind that are allocated and not yet released."""
        with self._lock:
            return self._held.get(kind, 0)


class HostMemory(Protocol):
    """Host memory that a device may see. ``array`` is (nbytes,) uint8, page-aligned; ``dev_ptr`` None without GPU."""

    @property
    def array(self) -> Pixels: ...
    @property
    def dev_ptr(self) -> int | None: ...
    @property
    def nbytes(self) -> int: ...
    def close(self) -> None: ...


class _Owner:
    kind = "host"

    def __init__(self, nbytes: int, ledger: Ledger) -> None:
        self._ledger = ledger
        self._nbytes = nbytes
        self._lock = threading.Lock()
        self._open = True
        ledger.add(self.kind, nbytes)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def close(self) -> None:
        """Release the memory; idempotent. No view of it may be used afterwards."""
        with self._lock:
            if not self._open:
                return
            self._open = False
        try:
            self._release()
        finally:
            self._ledger.add(self.kind, -self._nbytes)

    def _release(self) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        if not self._open:
            raise MemoryClosedError(f"{type(self).__name__} of {self._nbytes} bytes was used after close()")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            warnings.warn(f"unclosed {type(self).__name__} of {self._nbytes} bytes", ResourceWarning, stacklevel=2)
            self.close()


class PageMemory(_Owner):
    """Ordinary page-aligned host memory (an anonymous mapping), returned to the system at once on close."""

    def __init__(self, nbytes: int, ledger: Ledger) -> None:
        try:
            self._map = mmap.mmap(-1, max(nbytes, 1))
        except (OSError, OverflowError, ValueError) as error:
            remedy = "lower the picture size or the ring (fewer slots)"
            raise OutOfMemoryError("host memory", nbytes, available_host_bytes(), remedy) from error
        super().__init__(nbytes, ledger)
        self._array: Pixels | None = np.frombuffer(self._map, np.uint8)

    @property
    def array(self) -> Pixels:
        self._check()
        assert self._array is not None
        return self._array

    @property
    def dev_ptr(self) -> None:
        return None

    def _release(self) -> None:
        self._array = None
        try:
            self._map.close()
        except BufferError:
            # A caller still holds a view: the mapping then goes with its last view, never under it.
            del self._map


class _Seen(_Owner):
    """Host memory that the GPU sees; whoever makes one sets the three."""

    _ptr: int
    _dev_ptr: int
    _array: Pixels

    @property
    def array(self) -> Pixels:
        self._check()
        return self._array

    @property
    def dev_ptr(self) -> int:
        self._check()
        return self._dev_ptr

    def _find_dev_ptr(self) -> None:
        """CuPy has no hostGetDevicePointer; the attributes carry the same address. Closes itself where that fails."""
        from cupy.cuda import runtime

        try:
            self._dev_ptr = runtime.pointerGetAttributes(self._ptr).devicePointer
        except runtime.CUDARuntimeError:
            self.close()
            raise


class MappedMemory(_Seen):
    """Pinned host memory that the GPU reads and writes in place: cudaHostAlloc, mapped and portable."""

    kind = "pinned"

    def __init__(self, nbytes: int, ledger: Ledger) -> None:
        from cupy.cuda import runtime

        asked = _whole_words(nbytes)
        with _OutOfMemory("pinned host memory", nbytes, _PINNED_REMEDY):
            self._ptr = runtime.hostAlloc(asked, runtime.hostAllocMapped | runtime.hostAllocPortable)
        super().__init__(nbytes, ledger)
        self._find_dev_ptr()
        self._array = _bytes_at(self._ptr, asked)[:nbytes]

    def _release(self) -> None:
        from cupy.cuda import runtime

        _free(runtime.freeHost, self._ptr)


class RegisteredMemory(_Seen):
    """Host memory that was there already, made visible to the GPU for as long as this is open (cudaHostRegister).

    ``array`` is (n,) uint8 over any memory: NumPy's, POSIX shared memory, a driver's buffer. ``owner`` is closed after
    it. CUDA pins whole pages, and refuses those that are registered already: memory of whole pages is best.
    """

    kind = "pinned"

    def __init__(self, array: Pixels, ledger: Ledger, owner: HostMemory | None = None) -> None:
        from cupy.cuda import runtime

        self._ptr = array.ctypes.data
        try:
            with _OutOfMemory("registered host memory", array.nbytes, _PINNED_REMEDY):
                # 1 | 2: cudaHostRegisterPortable, cudaHostRegisterMapped.
                runtime.hostRegister(self._ptr, array.nbytes, 1 | 2)
        except BaseException:
            if owner is not None:
                owner.close()
            raise
        super().__init__(array.nbytes, ledger)
        self._owner = owner
        self._array = array
        self._find_dev_ptr()

    def _release(self) -> None:
        from cupy.cuda import runtime

        del self._array
        try:
            _free(runtime.hostUnregister, self._ptr)
        finally:
            if self._owner is not None:
                self._owner.close()


class ManagedMemory(_Seen):
    """Memory that CPU and GPU see under one address (cudaMallocManaged), kept on the host where that can be asked for.

    Where the CPU may use it beside a working GPU (``concurrent``) it is advised to stay on the host and be mapped for
    ``device``, so that frames do not move back and forth by page faults. Elsewhere whoever launches work has to attach
    it to the work's stream first, and to the host afterwards.
    """

    kind = "managed"

    def __init__(self, nbytes: int, ledger: Ledger, device: int, concurrent: bool) -> None:
        from cupy.cuda import runtime

        asked = _whole_words(nbytes)
        with _OutOfMemory("managed memory", nbytes, "lower the picture size or the ring, or use fewer cameras"):
            # 1, 2: cudaMemAttachGlobal, cudaMemAttachHost.
            self._ptr = self._dev_ptr = runtime.mallocManaged(asked, 1 if concurrent else 2)
        super().__init__(nbytes, ledger)
        if concurrent:
            try:
                keep_on_host(self._ptr, asked, device)
            except DeviceFailedError:
                self.close()
                raise
        self._array = _bytes_at(self._ptr, asked)[:nbytes]

    def _release(self) -> None:
        from cupy.cuda import runtime

        _free(runtime.free, self._ptr)


class DeviceMemory(_Owner):
    """Memory on the current CUDA device (cudaMalloc), 256-byte aligned."""

    kind = "device"

    def __init__(self, nbytes: int, ledger: Ledger) -> None:
        from cupy.cuda import runtime

        with _OutOfMemory("device memory", nbytes, "lower the picture size or use fewer cameras", on_device=True):
            self._ptr: int = runtime.malloc(max(nbytes, 1))
        super().__init__(nbytes, ledger)

    @property
    def ptr(self) -> int:
        self._check()
        return self._ptr

    def _release(self) -> None:
        from cupy.cuda import runtime

        _free(runtime.free, self._ptr)


class OnDevice(Protocol):
    """Memory that only the device sees, at ``ptr``."""

    @property
    def ptr(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def close(self) -> None: ...


class ResultMemory:
    """What a slot's results lie in: host memory, and where results stay on the device as much of it beside that."""

    def __init__(self, host: HostMemory, device: OnDevice | None = None) -> None:
        self.host = host
        self.device = device

    @property
    def nbytes(self) -> int:
        """Of host memory; the device's is the same again."""
        return self.host.nbytes

    def close(self) -> None:
        """Release both; idempotent."""
        self.host.close()
        if self.device is not None:
            self.device.close()


_PINNED_REMEDY = "lower the picture size or the ring, or raise the container's memory limit"


class _OutOfMemory:
    """Makes of CUDA's answer that there is no memory an OutOfMemoryError with the numbers."""

    def __init__(self, what: str, nbytes: int, remedy: str, on_device: bool = False) -> None:
        self._what, self._nbytes, self._remedy, self._on_device = what, nbytes, remedy, on_device

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        from cupy.cuda import runtime

        if isinstance(error, runtime.CUDARuntimeError) and error.status == CUDA_ERROR_MEMORY_ALLOCATION:
            free = runtime.memGetInfo()[0] if self._on_device else available_host_bytes()
            raise OutOfMemoryError(self._what, self._nbytes, free, self._remedy) from error


def _whole_words(nbytes: int) -> int:
    """What is asked for ``nbytes``: the device reads the whole words that hold the last of them."""
    return align_up(max(nbytes, 1), PLANE_ALIGNMENT)


def _bytes_at(address: int, nbytes: int) -> Pixels:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _free(release: Callable[[int], None], pointer: int) -> None:
    """Release CUDA memory; after a lost context every call fails and the memory is gone with it."""
    from cupy.cuda import runtime

    try:
        release(pointer)
    except runtime.CUDARuntimeError as error:
        if error.status not in CUDA_STICKY_CODES:
            raise


def host_memory_bytes() -> int:
    """What this process may have at most: the machine's memory, or the container's limit where that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in CGROUP_LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                limit = file.read().strip()
        except OSError:
            continue
        return min(total, int(limit)) if limit.isdecimal() else total
    return total


def sensible_slot_bytes() -> int:
    """How much of the host's memory all slots together should be: a quarter of it."""
    return host_memory_bytes() // 4


def available_host_bytes() -> int | None:
    """MemAvailable of the machine in bytes, None where /proc/meminfo does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
