"""Copies within host memory: what can be measured without a GPU, and what a copy on the CPU costs beside one."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import cv2

from kernels.image import Pixels
from kernels.memory import Ledger, PageMemory, available_host_bytes, host_memory_bytes
from kernels.transfer import POISON, Pattern, Peak, Transfer
from kernels.transfer_plan import HOST_WAYS, Memory, Room, Way

MARGIN_BYTES = 256 << 20
_ROW = 4096  # of what cv2 takes for a picture
_copy: Any = cv2.copyTo  # its types know no missing mask


class HostMachine:
    """See :class:`kernels.transfer.Machine`."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    @property
    def ways(self) -> Sequence[Way]:
        return HOST_WAYS

    def room(self) -> Room:
        return Room(free_host_bytes())

    @contextmanager
    def hold(self, memory: Memory, nbytes: int, paired: bool) -> Iterator[HostHold]:
        with ExitStack() as stack:
            began = time.perf_counter()
            source, target = (stack.enter_context(PageMemory(nbytes, self.ledger)) for _ in range(2))
            yield HostHold(source, target, self.ledger, stack, time.perf_counter() - began)

    def peak(self) -> Peak | None:
        return None


class HostHold:
    """Two buffers whose pages are there, and now and then a fresh one. See :class:`kernels.transfer.Hold`."""

    def __init__(
        self, source: PageMemory, target: PageMemory, ledger: Ledger, stack: ExitStack, setup_s: float
    ) -> None:
        self.setup_s = setup_s
        self._pattern = Pattern(1)
        self._source, self._target = source.array, target.array
        self._pattern.fill(self._source)
        self._target[:] = POISON
        self._ledger = ledger
        self._fresh: PageMemory | None = None
        stack.callback(self._let_go)

    def transfer(self, way: Way) -> Transfer:
        nbytes = self._source.nbytes

        def spoil() -> None:
            self._target[:] = POISON

        def renew() -> None:
            self._let_go()
            self._fresh = PageMemory(nbytes, self._ledger)

        def fresh() -> Pixels:
            assert self._fresh is not None
            return self._fresh.array

        def touch() -> None:
            fresh()[:: mmap.PAGESIZE] = 1

        def untouched() -> int | None:
            wrong = (fresh()[:: mmap.PAGESIZE] != 1).nonzero()[0]
            return int(wrong[0]) * mmap.PAGESIZE if wrong.size else None

        runs: dict[str, Transfer] = {
            "memcpy": Transfer(
                lambda: _memmove(self._target, self._source), spoil, lambda: self._pattern.first_wrong(self._target)
            ),
            "copyTo": Transfer(
                _copy_to(self._target, self._source), spoil, lambda: self._pattern.first_wrong(self._target)
            ),
            "fresh copy": Transfer(
                lambda: _memmove(fresh(), self._source), renew, lambda: self._pattern.first_wrong(fresh()), renew
            ),
            "fresh touch": Transfer(touch, renew, untouched, renew),
        }
        return runs[way.how]

    def _let_go(self) -> None:
        if self._fresh is not None:
            self._fresh.close()
            self._fresh = None


def _memmove(target: Pixels, source: Pixels) -> None:
    ctypes.memmove(target.ctypes.data, source.ctypes.data, source.nbytes)


def _copy_to(target: Pixels, source: Pixels) -> Callable[[], object]:
    """cv2.copyTo takes pictures: rows, and what is left as one short row."""
    whole = source.nbytes // _ROW * _ROW
    pictures = [(source[:whole].reshape(-1, _ROW), target[:whole].reshape(-1, _ROW))]
    if whole < source.nbytes:
        pictures.append((source[whole:].reshape(1, -1), target[whole:].reshape(1, -1)))

    def run() -> None:
        for src, dst in pictures:
            _copy(src, None, dst)

    return run


def free_host_bytes() -> int:
    """What this process may still take of the host's memory, less a margin: the machine's, or its container's.

    A container's is its limit less what it holds; files that the kernel would give up at once are not counted as held
    (Linux, "Control Group v2", memory.stat: inactive_file).
    """
    free = available_host_bytes()
    free = host_memory_bytes() if free is None else free
    try:
        limit, held = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
        if limit.isdecimal():
            stat = dict(line.split() for line in _read("/sys/fs/cgroup/memory.stat").splitlines())
            free = min(free, int(limit) - int(held) + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        pass
    return max(0, free - MARGIN_BYTES - free // 16)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
