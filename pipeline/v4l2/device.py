"""One open camera: requests with their errors told apart, and the few calls that more than one module makes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kernels.errors import PinholeError
from pipeline.v4l2 import abi
from pipeline.v4l2.system import Kernel, System

S = TypeVar("S", bound=ctypes.Structure)

GONE = frozenset({errno.ENODEV, errno.ENXIO, errno.EIO})
_CAPTURE = abi.CAP_VIDEO_CAPTURE | abi.CAP_VIDEO_CAPTURE_MPLANE


class RequestError(PinholeError):
    """A driver refused a request: ``request`` is its name in the header, ``number`` the system's error."""

    def __init__(self, request: str, number: int) -> None:
        self.request = request
        self.number = number
        super().__init__(f"{request}: {os.strerror(number)} ({errno.errorcode.get(number, number)})")


@dataclass(frozen=True, slots=True)
class Abilities:
    """What QUERYCAP says of a node. ``buf_type``: whether its buffers have one memory or one for each plane."""

    driver: str
    card: str
    bus: str
    capture: bool
    streaming: bool
    buf_type: int

    @property
    def multiplanar(self) -> bool:
        return self.buf_type == abi.CAPTURE_MPLANE


class CameraDevice:
    """An open node. Requests may come from any thread; ``wait`` from one; ``close`` when no other call is under way.

    Raises:
        OSError: from the constructor, if it does not open.
    """

    def __init__(self, path: str, system: System | None = None) -> None:
        self.path = path
        self.system: System = Kernel() if system is None else system
        self._fd: int | None = self.system.open(path)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()  # between wake and close

    @property
    def fd(self) -> int:
        if self._fd is None:
            raise RequestError(f"a request to {self.path} after it was closed", errno.EBADF)
        return self._fd

    def close(self) -> None:
        """Let the device go; idempotent. What is queued comes back: the driver writes nothing afterwards."""
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is None:
                return
            os.close(self._wake)
        with contextlib.suppress(OSError):  # of a device that is gone
            self.system.close(fd)

    def call(self, name: str, request: int, argument: ctypes.Structure | ctypes.c_int32) -> None:
        """One request. Raises RequestError."""
        try:
            self.system.ioctl(self.fd, request, argument)
        except OSError as error:
            raise RequestError(f"VIDIOC_{name}", error.errno or errno.EIO) from None

    def tries(self, name: str, request: int, argument: ctypes.Structure | ctypes.c_int32) -> bool:
        """Like :meth:`call`; False where the driver does not know the request, or has no such thing."""
        try:
            self.call(name, request, argument)
        except RequestError as error:
            if error.number in (errno.EINVAL, errno.ENOTTY, errno.ENODATA, errno.ENOLINK, errno.ENOLCK, errno.ERANGE):
                return False
            raise
        return True

    def each(self, name: str, request: int, make: Callable[[int], S], most: int = 256) -> Iterator[S]:
        """What an enumeration gives: ``make(index)`` for 0, 1, … until the driver has no more."""
        for index in range(most):
            item = make(index)
            if not self.tries(name, request, item):
                return
            yield item

    def abilities(self) -> Abilities:
        """What this node is."""
        found = abi.Capability()
        self.call("QUERYCAP", abi.QUERYCAP, found)
        caps = found.device_caps if found.capabilities & abi.CAP_DEVICE_CAPS else found.capabilities
        return Abilities(
            driver=found.driver.decode(errors="replace"),
            card=found.card.decode(errors="replace"),
            bus=found.bus_info.decode(errors="replace"),
            capture=bool(caps & _CAPTURE),
            streaming=bool(caps & abi.CAP_STREAMING),
            buf_type=abi.CAPTURE if caps & abi.CAP_VIDEO_CAPTURE else abi.CAPTURE_MPLANE,
        )

    def subscribe_source_change(self) -> bool:
        """Hear of a change of size or format by the chosen input's side; False where the driver does not tell."""
        number = ctypes.c_int32(0)
        self.tries("G_INPUT", abi.G_INPUT, number)
        wanted = abi.EventSubscription(type=abi.EVENT_SOURCE_CHANGE, id=number.value)
        return self.tries("SUBSCRIBE_EVENT", abi.SUBSCRIBE_EVENT, wanted)

    def take_events(self) -> set[int]:
        """The types of events that are waiting."""
        types: set[int] = set()
        event = abi.Event()
        with contextlib.suppress(RequestError):  # ENOENT: no more
            for _ in range(64):
                self.call("DQEVENT", abi.DQEVENT, event)
                types.add(event.type)
        return types

    def wait(self, timeout_s: float) -> int:
        """poll(2) events of the device; 0 once the time is over or somebody woke it."""
        wake = self._wake
        events = self.system.wait(((self.fd, select.POLLIN | select.POLLPRI), (wake, select.POLLIN)), timeout_s)
        return events.get(self.fd, 0)

    def wake(self) -> None:
        """End a :meth:`wait`, now and for good. Any thread, at any time."""
        with self._lock:
            if self._fd is not None:
                os.eventfd_write(self._wake, 1)


@contextlib.contextmanager
def opened(path: str, system: System | None = None) -> Iterator[CameraDevice]:
    """A device for a few requests. Raises OSError."""
    device = CameraDevice(path, system)
    try:
        yield device
    finally:
        device.close()
