"""A driver of cameras in plain Python, in the place of the kernel: it keeps the rules of V4L2 and fails on demand.

A breach of the rules by who uses it (a buffer queued twice, memory of another size) is an AssertionError, no answer.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.v4l2 import abi

NAMES = {value: name.removeprefix("VIDIOC_") for name, value in abi.REQUESTS.items()}
Modes = dict[str, dict[tuple[int, int], tuple[int, ...]]]  # format → size → rates
COMPRESSED = ("MJPG", "JPEG")
# Bits of all planes, and how often each memory's rows and bytes go into the first one's.
BITS = {"NV12": 12, "NM12": 12, "YU12": 12, "YUYV": 16, "BGR3": 24, "GREY": 8, "Y16 ": 16, "MJPG": 24, "YV12": 12}
FIRST = {"NV12": 1, "NM12": 1, "YU12": 1, "YUYV": 2, "BGR3": 3, "GREY": 1, "Y16 ": 2, "MJPG": 0, "YV12": 1}


@dataclass
class FakeControl:
    id: int
    name: str
    kind: int
    minimum: int = 0
    maximum: int = 255
    step: int = 1
    default: int = 128
    value: int = 128
    flags: int = 0
    menu: dict[int, str] = field(default_factory=dict)


@dataclass
class FakeCamera:
    """One camera. ``modes``: format → sizes → rates. ``fill`` makes a frame's bytes for a buffer of that many."""

    modes: Modes
    card: str = "Fake"
    bus: str = "usb-fake-1"
    driver: str = "fakevideo"
    mplane: bool = False
    takes_userptr: bool = True
    refuses_addresses: bool = False
    row_alignment: int = 1
    flags: int = abi.BUF_FLAG_TIMESTAMP_MONOTONIC
    pace_s: float = 0.0  # between frames
    data_offset: int = 0
    extra_bytes: int = 0  # of sizeimage beyond the picture
    gone: bool = False
    paused: bool = False  # no frame comes
    controls: list[FakeControl] = field(default_factory=list)
    fill: Callable[[int, int], bytes] = lambda number, nbytes: bytes([number % 256]) * nbytes
    used: Callable[[int], int] = lambda nbytes: nbytes
    stamp_ns: Callable[[], int] = time.monotonic_ns
    next_flags: list[int] = field(default_factory=list)  # added to the flags of the next frames, one each
    sequence_step: list[int] = field(default_factory=list)
    # Its state.
    code: str = ""
    size: tuple[int, int] = (0, 0)
    stride: int = 0
    rate: int = 30
    memory: int = 0
    count: int = 0
    buffer_sizes: tuple[int, ...] = ()  # as they were asked for: what the camera sees may be of another size meanwhile
    streaming: bool = False
    queued: list[int] = field(default_factory=list)
    addresses: dict[int, tuple[int, ...]] = field(default_factory=dict)
    maps: dict[int, list[mmap.mmap]] = field(default_factory=dict)
    events: list[int] = field(default_factory=list)
    sequence: int = -1
    frames: int = 0
    pinned: int = 0  # times that an address was new to a buffer
    opened: int = 0

    def __post_init__(self) -> None:
        if not self.code:
            self.code = next(iter(self.modes))
            self.size = next(iter(self.modes[self.code]))

    @property
    def many(self) -> bool:
        return self.code == "NM12"

    def sizes(self) -> tuple[int, ...]:
        width, height = self.size
        if self.code in COMPRESSED:
            return (width * height * 3 + self.extra_bytes,)
        if self.many:
            return (self.stride * height, self.stride * -(-height // 2))
        bits_of_first = 8 * FIRST[self.code]
        return (self.stride * height * BITS[self.code] // bits_of_first + self.extra_bytes,)


class FakeSystem:
    """Cameras by path. ``fail[name]``: errors for the next calls of a request, 0 for none. ``calls``: all of them."""

    def __init__(self, cameras: dict[str, FakeCamera]) -> None:
        self.cameras = cameras
        self.fail: dict[str, list[int]] = {}
        self.open_error: dict[str, int] = {}
        self.calls: list[str] = []
        self._open: dict[int, FakeCamera] = {}

    # ---- what the source calls

    def open(self, path: str) -> int:
        camera = self.cameras.get(os.path.realpath(path))
        if (number := self.open_error.get(path)) is not None:
            raise OSError(number, os.strerror(number))
        if camera is None or camera.gone:
            raise FileNotFoundError(errno.ENOENT, "no such camera")
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._open[fd] = camera
        camera.opened += 1
        return fd

    def close(self, fd: int) -> None:
        camera = self._open.pop(fd)
        camera.opened -= 1
        if camera.opened == 0:
            self._stop(camera)
            camera.count = 0
        os.close(fd)

    def ioctl(self, fd: int, request: int, argument: Any) -> None:
        name, camera = NAMES[request], self._open[fd]
        self.calls.append(name)
        if waiting := self.fail.get(name):
            number = waiting.pop(0)
            if number:
                raise OSError(number, os.strerror(number))
        if camera.gone:
            raise OSError(errno.ENODEV, "gone")
        getattr(self, f"_{name.lower()}", self._unknown)(camera, argument)

    def map(self, fd: int, length: int, offset: int) -> mmap.mmap:
        camera = self._open[fd]
        made = mmap.mmap(-1, length)
        camera.maps.setdefault(offset >> 24, []).append(made)
        return made

    def wait(self, fds: Sequence[tuple[int, int]], timeout_s: float) -> dict[int, int]:
        (fd, _), (wake, _) = fds
        camera = self._open[fd]
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        ready = camera.gone or camera.events or (camera.streaming and camera.queued and not camera.paused)
        woken = dict(poll.poll(0 if ready else min(timeout_s, 0.05) * 1e3))
        if camera.gone:
            return woken | {fd: select.POLLERR | select.POLLHUP}
        if camera.events:
            return woken | {fd: select.POLLPRI}
        if ready and camera.pace_s:
            time.sleep(camera.pace_s)
        return woken | {fd: select.POLLIN} if ready else woken

    # ---- the driver

    def _unknown(self, camera: FakeCamera, argument: Any) -> None:
        raise OSError(errno.ENOTTY, "not a request of this driver")

    def _querycap(self, camera: FakeCamera, cap: abi.Capability) -> None:
        cap.driver, cap.card, cap.bus_info = camera.driver.encode(), camera.card.encode(), camera.bus.encode()
        kind = abi.CAP_VIDEO_CAPTURE_MPLANE if camera.mplane else abi.CAP_VIDEO_CAPTURE
        cap.device_caps = kind | abi.CAP_STREAMING
        cap.capabilities = cap.device_caps | abi.CAP_DEVICE_CAPS

    def _enum_fmt(self, camera: FakeCamera, desc: abi.FmtDesc) -> None:
        codes = list(camera.modes)
        if desc.index >= len(codes):
            raise OSError(errno.EINVAL, "no more")
        desc.pixelformat = abi.fourcc(codes[desc.index])
        desc.description = b"a format"

    def _enum_framesizes(self, camera: FakeCamera, size: abi.FrmSizeEnum) -> None:
        sizes = list(camera.modes[abi.code_of(size.pixel_format)])
        if size.index >= len(sizes):
            raise OSError(errno.EINVAL, "no more")
        size.type = abi.DISCRETE
        size.discrete.width, size.discrete.height = sizes[size.index]

    def _enum_frameintervals(self, camera: FakeCamera, one: abi.FrmIvalEnum) -> None:
        rates = camera.modes[abi.code_of(one.pixel_format)].get((one.width, one.height), ())
        if one.index >= len(rates):
            raise OSError(errno.EINVAL, "no more")
        one.type = abi.DISCRETE
        one.discrete.numerator, one.discrete.denominator = 1, rates[one.index]

    def _g_fmt(self, camera: FakeCamera, format: abi.Format) -> None:
        sizes = camera.sizes()
        if camera.mplane:
            mp = format.fmt.pix_mp
            mp.width, mp.height, mp.pixelformat, mp.field = *camera.size, abi.fourcc(camera.code), abi.FIELD_NONE
            mp.num_planes = len(sizes)
            for index, nbytes in enumerate(sizes):
                mp.plane_fmt[index].sizeimage, mp.plane_fmt[index].bytesperline = nbytes, camera.stride
        else:
            pix = format.fmt.pix
            pix.width, pix.height, pix.pixelformat, pix.field = *camera.size, abi.fourcc(camera.code), abi.FIELD_NONE
            pix.bytesperline, pix.sizeimage = camera.stride, sizes[0]

    def _s_fmt(self, camera: FakeCamera, format: abi.Format) -> None:
        if camera.count:
            raise OSError(errno.EBUSY, "buffers are there")
        part = format.fmt.pix_mp if camera.mplane else format.fmt.pix
        asked = part.plane_fmt[0].bytesperline if camera.mplane else part.bytesperline
        code, size = abi.code_of(part.pixelformat), (part.width, part.height)
        if code in camera.modes:
            camera.code = code
        sizes = camera.modes[camera.code]
        camera.size = size if size in sizes else min(sizes, key=lambda s: abs(s[0] * s[1] - size[0] * size[1]))
        row = camera.size[0] * FIRST[camera.code]
        camera.stride = -(-row // camera.row_alignment) * camera.row_alignment
        if camera.row_alignment > 1:
            camera.stride = max(camera.stride, asked)
        self._g_fmt(camera, format)

    def _g_parm(self, camera: FakeCamera, parm: abi.StreamParm) -> None:
        parm.parm.capture.capability = abi.CAP_TIMEPERFRAME
        parm.parm.capture.timeperframe = abi.Fract(1, camera.rate)

    def _s_parm(self, camera: FakeCamera, parm: abi.StreamParm) -> None:
        wanted = parm.parm.capture.timeperframe
        rates = camera.modes[camera.code][camera.size]
        camera.rate = min(rates, key=lambda rate: abs(rate - wanted.denominator / wanted.numerator))

    def _subscribe_event(self, camera: FakeCamera, wanted: abi.EventSubscription) -> None:
        assert wanted.type == abi.EVENT_SOURCE_CHANGE

    def _dqevent(self, camera: FakeCamera, event: abi.Event) -> None:
        if not camera.events:
            raise OSError(errno.ENOENT, "no event")
        event.type = camera.events.pop(0)

    def _reqbufs(self, camera: FakeCamera, request: abi.RequestBuffers) -> None:
        if camera.streaming:
            raise OSError(errno.EBUSY, "streaming")
        if request.memory == abi.USERPTR and not camera.takes_userptr:
            raise OSError(errno.EINVAL, "no foreign memory")
        self._stop(camera)
        camera.count, camera.memory, camera.buffer_sizes = request.count, request.memory, camera.sizes()

    def _querybuf(self, camera: FakeCamera, buffer: abi.Buffer) -> None:
        sizes = camera.sizes()
        if camera.mplane:
            for index, nbytes in enumerate(sizes):
                buffer.m.planes[index].length = nbytes
                buffer.m.planes[index].m.mem_offset = buffer.index << 24 | index
        else:
            buffer.length, buffer.m.offset = sizes[0], buffer.index << 24

    def _qbuf(self, camera: FakeCamera, buffer: abi.Buffer) -> None:
        assert buffer.index < camera.count, "a buffer that was not asked for"
        assert buffer.memory == camera.memory
        assert buffer.index not in camera.queued, "the driver has it already"
        if camera.memory == abi.USERPTR:
            sizes = camera.buffer_sizes
            if camera.mplane:
                where = tuple(buffer.m.planes[i].m.userptr for i in range(len(sizes)))
                lengths = tuple(buffer.m.planes[i].length for i in range(len(sizes)))
            else:
                where, lengths = (buffer.m.userptr,), (buffer.length,)
            assert lengths == sizes
            assert all(address % mmap.PAGESIZE == 0 for address in where), "slots lie on pages"
            in_use = {a for index in camera.queued for a in camera.addresses[index]}
            assert not in_use & set(where), "one memory in two buffers"
            if camera.refuses_addresses:
                raise OSError(errno.EFAULT, "cannot be pinned")
            camera.pinned += camera.addresses.get(buffer.index) != where
            camera.addresses[buffer.index] = where
        camera.queued.append(buffer.index)

    def _dqbuf(self, camera: FakeCamera, buffer: abi.Buffer) -> None:
        if not camera.streaming:
            raise OSError(errno.EINVAL, "not streaming")
        if camera.paused or not camera.queued:
            raise OSError(errno.EAGAIN, "none yet")
        index = camera.queued.pop(0)
        camera.sequence += camera.sequence_step.pop(0) if camera.sequence_step else 1
        buffer.index, buffer.sequence, buffer.flags = index, camera.sequence % (1 << 32), camera.flags
        if camera.next_flags:
            buffer.flags |= camera.next_flags.pop(0)
        stamp = camera.stamp_ns()
        buffer.timestamp.tv_sec, buffer.timestamp.tv_usec = divmod(stamp // 1000, 1_000_000)
        for plane, nbytes in enumerate(camera.buffer_sizes):
            data = camera.fill(camera.frames, nbytes)
            if camera.memory == abi.USERPTR:
                ctypes.memmove(camera.addresses[index][plane], data, min(len(data), nbytes))
            else:
                memory = np.frombuffer(camera.maps[index][plane], np.uint8)
                memory[: len(data)] = np.frombuffer(data, np.uint8)
                del memory
            used = len(data) if camera.code in COMPRESSED else camera.used(nbytes)
            if camera.mplane:
                buffer.m.planes[plane].bytesused, buffer.m.planes[plane].data_offset = used, camera.data_offset
            else:
                buffer.bytesused = used
        camera.frames += 1

    def _streamon(self, camera: FakeCamera, kind: ctypes.c_int32) -> None:
        camera.streaming, camera.sequence = True, -1

    def _streamoff(self, camera: FakeCamera, kind: ctypes.c_int32) -> None:
        camera.streaming, camera.queued = False, []

    def _stop(self, camera: FakeCamera) -> None:
        camera.streaming, camera.queued, camera.addresses = False, [], {}
        for maps in camera.maps.values():
            for made in maps:
                assert made.closed, "a buffer is still mapped"
        camera.maps = {}

    # ---- controls

    def _query_ext_ctrl(self, camera: FakeCamera, query: abi.QueryExtCtrl) -> None:
        after = query.id & ~abi.CTRL_FLAG_NEXT_CTRL
        found = next((one for one in sorted(camera.controls, key=lambda c: c.id) if one.id > after), None)
        if found is None:
            raise OSError(errno.EINVAL, "no more")
        query.id, query.type, query.name, query.flags = found.id, found.kind, found.name.encode(), found.flags
        query.minimum, query.maximum, query.step = found.minimum, found.maximum, found.step
        query.default_value = found.default

    def _querymenu(self, camera: FakeCamera, item: abi.QueryMenu) -> None:
        control = next(one for one in camera.controls if one.id == item.id)
        if item.index not in control.menu:
            raise OSError(errno.EINVAL, "a gap in the menu")
        if control.kind == abi.CTRL_INTEGER_MENU:
            item.u.value = int(control.menu[item.index])
        else:
            item.u.name = control.menu[item.index].encode()

    def _g_ext_ctrls(self, camera: FakeCamera, request: abi.ExtControls) -> None:
        one = request.controls[0]
        one.u.value64 = next(control.value for control in camera.controls if control.id == one.id)

    def _s_ext_ctrls(self, camera: FakeCamera, request: abi.ExtControls) -> None:
        one = request.controls[0]
        control = next(control for control in camera.controls if control.id == one.id)
        control.value = one.u.value64 if control.kind == abi.CTRL_INTEGER64 else one.u.value


def make_nodes(folder: Path, *numbers: int) -> Path:
    """A folder like /dev with these nodes."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        (folder / f"video{number}").touch()
    return folder
