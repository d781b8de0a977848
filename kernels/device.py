"""The device seam: everything above it is the same with a GPU, without one, and in tests.

Three devices: :class:`CudaDevice`, :class:`HostDevice` (OpenCV on the CPU) and :class:`NullDevice` (computes nothing;
tests script its delays and failures). With :mod:`kernels.memory` the only file that calls CuPy's device API.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from kernels.driver_calls import can_wait_for_words
from kernels.errors import DeviceFailedError, DeviceUnavailableError, InputError, PinholeError
from kernels.image import NO_STAMP, PLANE_ALIGNMENT, AnyView, DeviceView, ImageView, Stamp, align_up
from kernels.memory import (
    CUDA_ERROR_MEMORY_ALLOCATION,
    CUDA_STICKY_CODES,
    DeviceMemory,
    HostMemory,
    Ledger,
    ManagedMemory,
    MappedMemory,
    PageMemory,
    RegisteredMemory,
    ResultMemory,
)
from kernels.numa import node_of_pci, preferring
from kernels.op import OpParams
from kernels.plan import Plan
from kernels.strategies import DEFAULT_STRATEGY, STRATEGIES, DeviceTraits, refusal, refusals

if TYPE_CHECKING:
    from kernels.run_cuda import CudaExecutor

WaitMode = Literal["auto", "block", "spin"]
MEMORY_STRATEGIES = tuple(STRATEGIES)
STREAM_PER_THREAD = 2  # cudaStreamPerThread: of whichever thread calls


class Completion(Protocol):
    """The end of one submitted frame: what a slot waits for before anyone reads its result or writes it again."""

    def done(self) -> bool:
        """True once the device has finished with both pictures. Never blocks.

        Raises:
            DeviceFailedError: the work failed.
        """

    def wait(self) -> None:
        """Block until :meth:`done`; raises what it raises."""

    def gpu_ns(self) -> int | None:
        """Nanoseconds the device worked on the frame, once done; None where the device does not tell."""


class Executor(Protocol):
    """Runs one plan, for one camera, in one stage thread."""

    @property
    def plan(self) -> Plan: ...

    @property
    def copies(self) -> Mapping[str, int]:
        """Bytes of each frame that are copied between host and device, by path; empty where it works in place."""

    @property
    def choice(self) -> Mapping[str, Any] | None:
        """How frames cross between host and device, and why so, where that was measured; plain data."""

    def submit(
        self, source: AnyView, result: AnyView, params: tuple[OpParams, ...], stamp: Stamp = NO_STAMP
    ) -> Completion:
        """Process ``source`` into ``result`` with one whole parameter set; returns before the device is done.

        Both views must stay valid and unwritten by others until the completion is done. Allocates and compiles
        nothing.

        Raises:
            DeviceFailedError: the launch failed.
            InputError: a view in memory that this executor does not reach.
        """

    def close(self) -> None:
        """Wait for the work in flight and release scratch memory; idempotent."""


class Device(ABC):
    """One place where chains run. Thread-safe; executors are not."""

    backend: ClassVar[str]
    memory: str
    name: str

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.holds_results = False  # results stay on it until somebody on the host asks; rings ask when they are made
        self.max_host_bytes: int | None = None  # that all slots together may be; None: whatever the system gives
        self.lost: DeviceFailedError | None = None  # what the device was lost with
        self.on_lost: Callable[[DeviceFailedError], object] | None = (
            None  # called once, from whichever thread found out
        )

    def lose(self, error: DeviceFailedError) -> None:
        """Note that a sticky error has taken the device from this process."""
        first = self.lost is None
        self.lost = error
        if first and self.on_lost is not None:
            self.on_lost(error)

    def activate(self) -> None:
        """Make the device current in the calling thread; each thread that uses it calls this first."""

    @abstractmethod
    def allocate_slot(self, nbytes: int) -> HostMemory:
        """Host memory for a slot, visible to the device in place. Raises OutOfMemoryError."""

    def allocate_pages(self, nbytes: int) -> HostMemory:
        """The same in ordinary pages where the device can see those: a camera's driver can pin and write them.

        Not so where only CUDA's own memory will do: a driver may then refuse it. Raises OutOfMemoryError.
        """
        return self.allocate_slot(nbytes)

    def allocate_result(self, nbytes: int) -> ResultMemory:
        """Memory for a slot's result, on the device as well where that holds results. Raises OutOfMemoryError."""
        return ResultMemory(self.allocate_slot(nbytes))

    def fetch(self, result: DeviceView, into: ImageView) -> None:
        """Copy a picture that is done from the device to the host; blocks until it is there. Any thread.

        Raises:
            DeviceFailedError
        """
        raise DeviceUnavailableError(f"{self.name} has no memory of its own")

    @abstractmethod
    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> Executor:
        """Compile what the plan needs and allocate its scratch: slow, never on the frame path.

        Raises:
            OutOfMemoryError, CompileError, DeviceFailedError
        """

    def describe(self) -> dict[str, Any]:
        """For state and logs: backend, memory strategy, name and what the device says of itself."""
        return {"backend": self.backend, "memory": self.memory, "name": self.name}

    def check(self) -> None:
        """Raise DeviceFailedError if the device cannot be used any more; quick, for health."""

    def start_profiler(self) -> None:
        """Let a profiler that waits for it (``nsys profile -c cudaProfilerApi``) collect from now on.

        Raises:
            DeviceUnavailableError: there is no GPU to profile; DeviceFailedError
        """
        raise DeviceUnavailableError(f"{self.name} is not a GPU, and the CUDA profiler has nothing to collect here")

    def stop_profiler(self) -> None:
        """The end of :meth:`start_profiler`; takes as long as the profiler needs to write. DeviceFailedError."""

    def close(self) -> None:
        """Release the device; executors and slots must be closed before."""


class DoneNow:
    """The completion of work that was finished when submit returned."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return None

    def gpu_ns(self) -> int | None:
        return None


class HostDevice(Device):
    """The CPU with OpenCV: works anywhere, no GPU memory involved."""

    backend = "opencv"
    memory = "host"

    def __init__(self) -> None:
        super().__init__()
        self.name = f"OpenCV on {len(os.sched_getaffinity(0))} CPU cores"

    def allocate_slot(self, nbytes: int) -> HostMemory:
        return PageMemory(nbytes, self.ledger)

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> Executor:
        from kernels.run_cpu import CpuExecutor

        return CpuExecutor(plan)


class NullDevice(Device):
    """Computes nothing, on purpose: frames pass, results keep what they held. For tests of everything around it.

    ``delay_s`` is how long after submit a frame is done; ``fail_submit``, ``fail_wait`` and ``fail_fetch`` are raised
    once each if set. Its memory "on the device" is the host's.
    ``on_done`` is called with (source, result) when a frame's time is up, from whichever thread asks first.
    """

    backend = "null"
    memory = "host"
    name = "null device"

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__()
        self.delay_s = delay_s
        self.fail_allocation: PinholeError | None = None
        self.fail_submit: Exception | None = None
        self.fail_wait: Exception | None = None
        self.fail_fetch: Exception | None = None
        self.on_done: Any = None
        self.submitted = self.fetched = 0

    def allocate_slot(self, nbytes: int) -> HostMemory:
        if self.fail_allocation is not None:
            raise self.fail_allocation
        return PageMemory(nbytes, self.ledger)

    def allocate_result(self, nbytes: int) -> ResultMemory:
        host = self.allocate_slot(nbytes)
        return ResultMemory(host, _NullDeviceMemory(nbytes, self.ledger) if self.holds_results else None)

    def fetch(self, result: DeviceView, into: ImageView) -> None:
        if (error := self.fail_fetch) is not None:
            self.fail_fetch = None
            raise error
        self.fetched += 1
        ctypes.memmove(into.buffer.ctypes.data, result.dev_ptr, result.spec.nbytes)

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> Executor:
        return NullExecutor(self, plan)


class _NullDeviceMemory(PageMemory):
    """Stands for memory that the host does not see."""

    kind = "device"

    @property
    def ptr(self) -> int:
        return self.array.ctypes.data


class NullExecutor:
    """See :class:`NullDevice`."""

    def __init__(self, device: NullDevice, plan: Plan) -> None:
        self._device = device
        self.plan = plan
        self.copies: Mapping[str, int] = {}
        self.choice: Mapping[str, Any] | None = None

    def submit(
        self, source: AnyView, result: AnyView, params: tuple[OpParams, ...], stamp: Stamp = NO_STAMP
    ) -> Completion:
        device = self._device
        if (error := device.fail_submit) is not None:
            device.fail_submit = None
            raise error
        device.submitted += 1
        return NullCompletion(device, source, result)

    def close(self) -> None:
        return None


class NullCompletion:
    """Done ``delay_s`` after it was made."""

    def __init__(self, device: NullDevice, source: AnyView, result: AnyView) -> None:
        self._device = device
        self._views = (source, result)
        self._due_ns = time.monotonic_ns() + int(device.delay_s * 1e9)
        self._lock = threading.Lock()
        self._finished = False

    def done(self) -> bool:
        if time.monotonic_ns() < self._due_ns:
            return False
        with self._lock:
            if not self._finished:
                self._finished = True
                if self._device.on_done is not None:
                    self._device.on_done(*self._views)
        return True

    def wait(self) -> None:
        time.sleep(max(0, self._due_ns - time.monotonic_ns()) / 1e9)
        self.done()
        if (error := self._device.fail_wait) is not None:
            self._device.fail_wait = None
            raise error

    def gpu_ns(self) -> int | None:
        return None


class CudaDevice(Device):
    """One CUDA device and a memory strategy. Nothing touches CUDA before one is made: a process may fork until then."""

    backend = "cuda"

    def __init__(self, index: int = 0, memory: str = DEFAULT_STRATEGY) -> None:
        super().__init__()
        self.memory = memory
        if (reason := cuda_absence(index)) is not None:
            raise DeviceUnavailableError(reason)
        from cupy.cuda import Device as CupyDevice
        from cupy.cuda import runtime

        self.index = index
        self._pid = os.getpid()
        with cuda_errors("cudaGetDeviceProperties"):
            properties = runtime.getDeviceProperties(index)
            attributes = CupyDevice(index).attributes
        self.name = properties["name"].decode()
        self.architecture = f"{properties['major']}{properties['minor']}"
        self.traits = DeviceTraits.of(attributes, int(self.architecture), self._waits_for_words())
        self.integrated = self.traits.integrated
        self.l2_bytes = int(properties["l2CacheSize"])
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.shared_bytes = int(properties["sharedMemPerMultiprocessor"])
        self.driver = runtime.driverGetVersion()
        with cuda_errors("cudaDeviceGetPCIBusId"):
            self.numa_node = node_of_pci(runtime.deviceGetPCIBusId(index))
        self.dump_folder: Path | None = None  # where executors write their CUDA text to
        if (reason := refusal(memory, self.traits)) is not None:
            offered = ", ".join(name for name, why in refusals(self.traits).items() if why is None)
            raise DeviceUnavailableError(f"memory {memory}: {self.name} {reason}; it offers {offered}")

    def _waits_for_words(self) -> bool:
        from cupy.cuda import Stream

        self.activate()
        with cuda_errors("cudaMalloc"), DeviceMemory(4, Ledger()) as word:
            stream = Stream(non_blocking=True)
            found = can_wait_for_words(stream.ptr, word.ptr)
            stream.synchronize()
        return found

    def activate(self) -> None:
        if os.getpid() != self._pid:
            raise DeviceUnavailableError(
                "CUDA was initialised in another process and this one was forked from it; use the spawn start method"
            )
        from cupy.cuda import runtime

        with cuda_errors("cudaSetDevice"):
            runtime.setDevice(self.index)

    def allocate_slot(self, nbytes: int) -> HostMemory:
        self.activate()
        with preferring(self.numa_node):
            return self._allocate_slot(nbytes)

    def _allocate_slot(self, nbytes: int) -> HostMemory:
        if self.memory == "pageable":
            return PageMemory(nbytes, self.ledger)
        if self.memory == "registered":
            return self._allocate_registered(nbytes)
        if self.memory == "unified":
            with cuda_errors("cudaMallocManaged"):
                return ManagedMemory(nbytes, self.ledger, self.index, self.traits.concurrent_managed)
        return self.allocate_pinned(nbytes)

    def _allocate_registered(self, nbytes: int) -> HostMemory:
        pages = PageMemory(align_up(max(nbytes, 1), PLANE_ALIGNMENT), Ledger())
        with cuda_errors("cudaHostRegister"):
            return RegisteredMemory(pages.array, self.ledger, pages)

    def allocate_pages(self, nbytes: int) -> HostMemory:
        if not (self.memory in ("zero_copy", "auto", "staged") and self.traits.can_register and self.traits.can_map):
            return self.allocate_slot(nbytes)
        self.activate()
        with preferring(self.numa_node):
            return self._allocate_registered(nbytes)

    def allocate_pinned(self, nbytes: int) -> HostMemory:
        """Host memory that is copied from without waiting. Raises OutOfMemoryError."""
        with cuda_errors("cudaHostAlloc"):
            return MappedMemory(nbytes, self.ledger)

    def allocate_result(self, nbytes: int) -> ResultMemory:
        host = self.allocate_slot(nbytes)
        if not self.holds_results:
            return ResultMemory(host)
        try:
            with cuda_errors("cudaMalloc"):
                return ResultMemory(host, DeviceMemory(nbytes, self.ledger))
        except BaseException:
            host.close()
            raise

    def fetch(self, result: DeviceView, into: ImageView) -> None:
        from cupy.cuda import runtime

        self.activate()
        host, nbytes = into.buffer.ctypes.data, result.spec.nbytes
        with cuda_errors("cudaMemcpyAsync"):
            runtime.memcpyAsync(host, result.dev_ptr, nbytes, runtime.memcpyDeviceToHost, STREAM_PER_THREAD)
            runtime.streamSynchronize(STREAM_PER_THREAD)

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> Executor:
        from kernels.auto import make_fastest
        from kernels.crossing import IN_PLACE, WHOLE, staged
        from kernels.run_cuda import CudaExecutor

        self.activate()
        if self.memory == "auto":
            return make_fastest(self, plan, wait)
        crossing = IN_PLACE
        if self.memory == "staged" and self.traits.waits_for_words:
            crossing = staged(plan)
        elif self.memory in ("staged", "pageable"):
            crossing = WHOLE
        if self.holds_results:
            crossing = replace(crossing, out=0)
        return CudaExecutor(self, plan, wait, crossing=crossing)

    def make_view_executor(self, plan: Plan, on_device: bool, wait: WaitMode = "block") -> CudaExecutor:
        """An executor whose result is device memory, and whose source is that (``on_device``) or a slot's.

        Raises what :meth:`make_executor` raises.
        """
        from kernels.crossing import IN_PLACE, Crossing
        from kernels.plan import reads_in_place
        from kernels.run_cuda import CudaExecutor

        self.activate()
        if on_device:
            return CudaExecutor(self, plan, wait, reads_in_place)
        return CudaExecutor(self, plan, wait, crossing=Crossing(1, 0) if self.memory == "pageable" else IN_PLACE)

    def describe(self) -> dict[str, Any]:
        major, minor = divmod(self.driver // 10, 100)
        return {
            **super().describe(),
            "index": self.index,
            "compute_capability": f"{self.architecture[:-1]}.{self.architecture[-1]}",
            "integrated": self.integrated,
            "cuda_driver": f"{major}.{minor}",
            "numa_node": self.numa_node,
            "traits": {name: getattr(self.traits, name) for name in DeviceTraits.__slots__},
            "not_offered": {name: why for name, why in refusals(self.traits).items() if why is not None},
        }

    def start_profiler(self) -> None:
        from cupy.cuda import runtime

        self.activate()
        with cuda_errors("cudaProfilerStart"):
            runtime.profilerStart()

    def stop_profiler(self) -> None:
        from cupy.cuda import runtime

        self.activate()
        with cuda_errors("cudaProfilerStop"):
            runtime.profilerStop()

    def check(self) -> None:
        from cupy.cuda import runtime

        self.activate()
        with cuda_errors("cudaMemGetInfo"):
            runtime.memGetInfo()


def find_nvtx() -> Any:
    """CuPy's NVTX (see :class:`kernels.profiler.Nvtx`), or None where it has none."""
    try:
        from cupy.cuda import nvtx
    except ImportError:
        return None
    return nvtx if nvtx.available else None


class CudaErrors:
    """Maps CUDA errors raised inside to DeviceFailedError: the one place where CuPy's error classes are known.

    A class and not a generator, as three of them are on every frame's path.
    """

    __slots__ = ("_call",)

    def __init__(self, call: str) -> None:
        self._call = call

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            return
        from cupy.cuda import driver, runtime

        if isinstance(error, (runtime.CUDARuntimeError, driver.CUDADriverError)):
            raise failure(self._call, error.status, str(error)) from error


cuda_errors = CudaErrors


def failure(call: str, code: int, text: str) -> DeviceFailedError:
    """The DeviceFailedError of a CUDA result code."""
    sticky = code in CUDA_STICKY_CODES
    advice = (
        "the CUDA context of this process is lost; restart it"
        if sticky
        else "free device memory or use fewer cameras"
        if code == CUDA_ERROR_MEMORY_ALLOCATION
        else "see the CUDA documentation of this code"
    )
    return DeviceFailedError(call, code, text.split(":")[0], sticky, advice)


def cuda_absence(index: int = 0) -> str | None:
    """Why CUDA device ``index`` cannot be used, or None if it can. First the driver: without one CuPy is no use."""
    if not _has_driver():
        return "there is no NVIDIA driver (libcuda.so.1)"
    try:
        from cupy.cuda import runtime
    except ImportError as error:
        return f"there is an NVIDIA driver, but CuPy is not installed ({error}); install the extra cuda12 or cuda13"
    try:
        count: int = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return f"no CUDA driver or device: {error}"
    return None if index < count else f"CUDA device {index} does not exist; there are {count}"


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def open_device(memory: str | None = None, index: int = 0) -> tuple[Device, str]:
    """The device for a memory strategy, and in words why it is that one; None means zero_copy where there is a GPU.

    Raises:
        InputError: no such strategy.
        DeviceUnavailableError: one that needs a GPU was asked for by name, and there is none that offers it.
    """
    if memory not in (None, *STRATEGIES):
        raise InputError("memory", f"unknown strategy {memory!r}", ", ".join(STRATEGIES))
    if memory == "host":
        return HostDevice(), "host was asked for"
    reason = cuda_absence(index)
    if reason is None:
        try:
            strategy = memory or DEFAULT_STRATEGY
            return CudaDevice(index, strategy), f"{strategy}: {STRATEGIES[strategy]}"
        except (DeviceUnavailableError, DeviceFailedError) as error:
            if memory is not None:
                raise
            reason = str(error)
    if memory is None:
        return HostDevice(), f"host, as there is no usable GPU: {reason}"
    raise DeviceUnavailableError(f"memory {memory} was asked for: {reason}; use --memory host")
