"""A driver's queue of buffers, and what is where: a buffer is with the driver, or it is not; nothing is in between.

With USERPTR a buffer's memory is a slot's. The kernel pins its pages when a buffer is queued with an address for the
first time, which takes as long as a copy; with the same one again it does not. So each address keeps its number as long
as there are enough numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.image import Pixels
from pipeline.v4l2 import abi
from pipeline.v4l2.device import CameraDevice, RequestError


@dataclass(frozen=True, slots=True)
class Dequeued:
    """A buffer that the driver gave back. ``used`` bytes of each memory; ``stamp_ns`` by the clock of ``flags``."""

    index: int
    owner: Any
    used: tuple[int, ...]
    flags: int
    field: int
    sequence: int
    stamp_ns: int

    @property
    def damaged(self) -> bool:
        return bool(self.flags & abi.BUF_FLAG_ERROR)

    @property
    def monotonic(self) -> bool:
        return self.flags & abi.BUF_FLAG_TIMESTAMP_MASK == abi.BUF_FLAG_TIMESTAMP_MONOTONIC

    @property
    def marks_start(self) -> bool:
        """The stamp is of the start of the exposure, not of the frame's end."""
        return self.flags & abi.BUF_FLAG_TSTAMP_SRC_MASK == abi.BUF_FLAG_TSTAMP_SRC_SOE


class BufferQueue:
    """One thread's. ``memory``: USERPTR or MMAP; ``lengths`` and ``offsets`` of a buffer's memories, as in a layout."""

    def __init__(self, device: CameraDevice, buf_type: int, memory: int, lengths: tuple[int, ...],
                 offsets: tuple[int, ...], count: int) -> None:  # fmt: skip
        """Ask for ``count`` buffers; the driver may give more or fewer.

        Raises:
            RequestError: EINVAL where the driver does not take that kind of memory.
        """
        self._device = device
        self._type = buf_type
        self._memory = memory
        self._lengths, self._offsets = lengths, offsets
        self.streaming = False
        self._maps: list[list[mmap.mmap]] = []
        request = abi.RequestBuffers(count=count, type=buf_type, memory=memory)
        device.call("REQBUFS", abi.REQBUFS, request)
        self.count = min(int(request.count), abi.MAX_BUFFERS * 8)
        self._buffers: list[abi.Buffer] = []
        self._planes: list[Any] = []
        for index in range(self.count):
            buffer, planes = self._make(index)
            self._buffers.append(buffer)
            self._planes.append(planes)
        self._taken, self._taken_planes = self._make(0)
        self._number: dict[int, int] = {}  # address → the number that the kernel knows it by
        self._free = list(range(self.count - 1, -1, -1))
        self._owners: dict[int, Any] = {}  # by number: whose buffer the driver has
        self.arrays: list[list[Pixels]] = []
        if memory == abi.MMAP:
            try:
                self._map_all()
            except BaseException:
                self.close()
                raise

    def _make(self, index: int) -> tuple[abi.Buffer, Any]:
        buffer = abi.Buffer(index=index, type=self._type, memory=self._memory)
        if self._type != abi.CAPTURE_MPLANE:
            return buffer, None
        planes = (abi.Plane * abi.MAX_PLANES)()
        buffer.m.planes = planes
        buffer.length = len(self._lengths)
        return buffer, planes

    def _map_all(self) -> None:
        for index in range(self.count):
            buffer, planes = self._make(index)
            buffer.length = len(self._lengths) if planes is not None else 0
            self._device.call("QUERYBUF", abi.QUERYBUF, buffer)
            where = (
                [(int(p.length), int(p.m.mem_offset)) for p in planes[: len(self._lengths)]]
                if planes is not None
                else [(int(buffer.length), int(buffer.m.offset))]
            )
            maps: list[mmap.mmap] = []
            self._maps.append(maps)
            for length, offset in where:
                maps.append(self._device.system.map(self._device.fd, length, offset))
            self.arrays.append([np.frombuffer(one, np.uint8) for one in maps])

    @property
    def queued(self) -> int:
        """Buffers that the driver has."""
        return len(self._owners)

    def queue_slot(self, address: int, owner: Any) -> None:
        """Hand a slot's memory to the driver (USERPTR), which gives it back with ``owner``. Raises RequestError."""
        number = self._number.get(address)
        if number is None or number in self._owners:
            number = self._take_number(address)
        buffer, planes = self._buffers[number], self._planes[number]
        if planes is None:
            buffer.m.userptr = address
            buffer.length = self._lengths[0]
        else:
            for plane, (offset, length) in enumerate(zip(self._offsets, self._lengths, strict=True)):
                planes[plane].m.userptr = address + offset
                planes[plane].length = length
                planes[plane].bytesused = 0
        buffer.bytesused = 0
        buffer.flags = 0
        self._device.call("QBUF", abi.QBUF, buffer)
        self._owners[number] = owner

    def _take_number(self, address: int) -> int:
        if self._free:
            number = self._free.pop()
        else:  # more slots than numbers: the kernel has to learn the address anew
            number = next((n for n in range(self.count) if n not in self._owners), -1)
            if number < 0:
                raise RequestError("VIDIOC_QBUF of more buffers than there are", errno.ENOBUFS)
            self._number = {known: n for known, n in self._number.items() if n != number}
        self._number[address] = number
        return number

    def queue_number(self, number: int) -> None:
        """Hand one of its own buffers to the driver (MMAP). Raises RequestError."""
        buffer, planes = self._buffers[number], self._planes[number]
        buffer.flags = 0
        if planes is not None:
            for plane in planes[: len(self._lengths)]:
                plane.bytesused = 0
        self._device.call("QBUF", abi.QBUF, buffer)
        self._owners[number] = None

    def start(self) -> None:
        """Begin to capture. Raises RequestError."""
        self._device.call("STREAMON", abi.STREAMON, ctypes.c_int32(self._type))
        self.streaming = True

    def take(self) -> Dequeued | None:
        """A buffer that is filled; None if there is none yet. Raises RequestError."""
        buffer, planes = self._taken, self._taken_planes
        if planes is not None:
            buffer.length = len(self._lengths)
        try:
            self._device.call("DQBUF", abi.DQBUF, buffer)
        except RequestError as error:
            if error.number == errno.EAGAIN:
                return None
            raise
        index = int(buffer.index)
        if index not in self._owners:
            raise RequestError(f"VIDIOC_DQBUF of buffer {index}, which was not queued", errno.EPROTO)
        if planes is None:
            used: tuple[int, ...] = (buffer.bytesused,)
        else:
            # A picture that does not begin where its memory does (an encoder's header before it) is none for us.
            used = tuple(0 if plane.data_offset else plane.bytesused for plane in planes[: len(self._lengths)])
        stamp = buffer.timestamp
        return Dequeued(
            index, self._owners.pop(index), used, buffer.flags, buffer.field, buffer.sequence,
            stamp.tv_sec * 1_000_000_000 + stamp.tv_usec * 1000,
        )  # fmt: skip

    def close(self) -> list[Any]:
        """Stop, unmap, and give the buffers back; idempotent. The owners of what the driver had and writes no more.

        A device that is gone does not answer: there only closing it ends what it does, so that is done here. Never
        raises RequestError.
        """
        answers = True
        if self.streaming or self._owners:
            self.streaming = False
            try:
                self._device.call("STREAMOFF", abi.STREAMOFF, ctypes.c_int32(self._type))
            except RequestError:
                answers = False
        self.arrays = []
        maps, self._maps = self._maps, []
        for one in maps:
            for mapped in one:
                with contextlib.suppress(BufferError):  # somebody still sees it: it goes with the last view
                    mapped.close()
        if answers:
            with contextlib.suppress(RequestError):
                self._device.call("REQBUFS", abi.REQBUFS, abi.RequestBuffers(0, self._type, self._memory))
        else:
            self._device.close()
        self.count = 0
        owners, self._owners = list(self._owners.values()), {}
        return owners
