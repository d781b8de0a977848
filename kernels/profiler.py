"""NVTX ranges: what a profiler writes beside the GPU's own rows, so that a frame can be found in them.

Off unless a profile is being taken: a range is then one look at a flag (measured: kernels/PROFILING.md).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from kernels.device import find_nvtx

_OFF: AbstractContextManager[None] = nullcontext()


class Nvtx(Protocol):
    """What is used of ``cupy.cuda.nvtx``."""

    available: bool

    def RangePush(self, message: str) -> None: ...  # noqa: N802 - CuPy's names
    def RangePop(self) -> None: ...  # noqa: N802
    def Mark(self, message: str) -> None: ...  # noqa: N802


class _Range:
    """Pushed and popped by the same thread, whatever happens to the switch meanwhile."""

    __slots__ = ("_name", "_nvtx")

    def __init__(self, nvtx: Nvtx, name: str) -> None:
        self._nvtx = nvtx
        self._name = name

    def __enter__(self) -> None:
        self._nvtx.RangePush(self._name)

    def __exit__(self, *_: object) -> None:
        self._nvtx.RangePop()


class Ranges:
    """The process's NVTX ranges, as the profiler that reads them is the process's. Any thread."""

    def __init__(self) -> None:
        self._nvtx: Nvtx | None = None

    @property
    def on(self) -> bool:
        return self._nvtx is not None

    def switch_on(self) -> bool:
        """Name everything from now on; False where CuPy has no NVTX, and nothing is named."""
        self._nvtx = find_nvtx()
        return self.on

    def switch_off(self) -> None:
        """Name nothing from now on; ranges that are open are still closed."""
        self._nvtx = None

    def range(self, camera: str, stage: str, sequence: int | None = None) -> AbstractContextManager[None]:
        """A range of the calling thread's: ``front process #17``. It may not contain an ``await``."""
        if (nvtx := self._nvtx) is None:
            return _OFF
        return _Range(nvtx, _named(camera, stage, sequence))

    def mark(self, camera: str, stage: str, sequence: int, lasted_ns: int) -> None:
        """A moment: a stage that no single thread spends has just ended, and lasted that long."""
        if (nvtx := self._nvtx) is not None:
            nvtx.Mark(f"{_named(camera, stage, sequence)} {lasted_ns / 1e3:.1f} us")


def _named(camera: str, stage: str, sequence: int | None) -> str:
    return f"{camera} {stage}" if sequence is None else f"{camera} {stage} #{sequence}"


RANGES = Ranges()
