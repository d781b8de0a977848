"""What V4L2 needs of the operating system, in one class, so that tests can put a driver of their own in its place."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
from collections.abc import Sequence
from typing import Protocol


class System(Protocol):
    """The calls a device is used through. All raise OSError as the system does."""

    def open(self, path: str) -> int: ...
    def close(self, fd: int) -> None: ...
    def ioctl(self, fd: int, request: int, argument: ctypes.Structure | ctypes.c_int32) -> None: ...
    def map(self, fd: int, length: int, offset: int) -> mmap.mmap: ...
    def wait(self, fds: Sequence[tuple[int, int]], timeout_s: float) -> dict[int, int]: ...


class Kernel:
    """The real one. Stateless: any thread."""

    def open(self, path: str) -> int:
        """Open a device for reading and writing; calls on it never wait."""
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def ioctl(self, fd: int, request: int, argument: ctypes.Structure | ctypes.c_int32) -> None:
        """One request, whose answer is in ``argument``; begun again where a signal ends it."""
        while True:
            try:
                fcntl.ioctl(fd, request, argument, True)
                return
            except InterruptedError:
                continue

    def map(self, fd: int, length: int, offset: int) -> mmap.mmap:
        """A driver's buffer in this process, to read and write."""
        return mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)

    def wait(self, fds: Sequence[tuple[int, int]], timeout_s: float) -> dict[int, int]:
        """poll(2): (descriptor, events asked for) → events by descriptor, empty once the time is over."""
        poll = select.poll()
        for fd, events in fds:
            poll.register(fd, events)
        return dict(poll.poll(max(0.0, timeout_s) * 1e3))
