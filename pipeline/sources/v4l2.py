from __future__ import annotations

import errno
import logging
import os
import re
import select
import time
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from kernels.errors import InputError
from kernels.image import ImageView, Pixels, check_size
from pipeline.frame import Capture
from pipeline.sources._capture_problem import device_path
from pipeline.sources._fields import RATE_ALLOWED, SIZE_ALLOWED, parse_rate, parse_size
from pipeline.sources._uri import parse_uri
from pipeline.sources.base import (
    FormatChanged,
    FrameCorrupt,
    SlotLayout,
    SlotProvider,
    Source,
    SourceConfig,
    SourceError,
    SourceFormat,
    WriteSlot,
)
from pipeline.v4l2 import abi
from pipeline.v4l2.cameras import DEV, SYSFS, Identity, find, identity_of, list_cameras, nodes
from pipeline.v4l2.device import CameraDevice, RequestError
from pipeline.v4l2.mjpeg import decode_into
from pipeline.v4l2.negotiate import UnfitCameraError, Wish, negotiate, select_input, set_rate
from pipeline.v4l2.pixels import Layout, Negotiated, layout_of
from pipeline.v4l2.problems import open_problem, request_problem
from pipeline.v4l2.queue import BufferQueue, Dequeued
from pipeline.v4l2.stamps import Stamps
from pipeline.v4l2.system import System
from pipeline.v4l2.unpack import Unpacker

log = logging.getLogger("pinhole.source")

FIRST_FRAME_S = 2.8  # below what a camera gives a read

_MAX_FPS = 1000
# What a driver answers to memory that it cannot write to.
_REFUSES_MEMORY = frozenset({errno.EINVAL, errno.EFAULT, errno.ENOMEM, errno.EOPNOTSUPP})


class V4l2Config(SourceConfig):
    size: Annotated[
        tuple[int, int] | None,
        BeforeValidator(parse_size),
        WithJsonSchema({"type": "string", "x-unit": "px", "x-allowed": SIZE_ALLOWED}),
    ] = Field(default=None, description="Width x height to ask for.")
    fps: Annotated[
        Fraction | None,
        BeforeValidator(parse_rate),
        WithJsonSchema({"type": "string", "x-unit": "1/s", "x-allowed": RATE_ALLOWED}),
    ] = Field(default=None, description="Frames per second to ask for.")
    format: str | None = Field(
        default=None,
        description="Pixel format, by the kernel's letters or our name; the cheapest with size and fps if not given.",
        json_schema_extra={"x-allowed": "such as NV12, YUYV, BGR3, GREY or MJPG; pinhole cameras lists what there is"},
    )
    io: Literal["auto", "userptr", "mmap"] = Field(
        default="auto",
        description="Whose memory the driver writes: userptr is the slots (no copy), mmap its own; auto tries both.",
    )
    queue: int = Field(default=3, ge=2, le=16, description="Buffers that the driver has at once.")
    input: int | None = Field(default=None, ge=0, le=63, description="Which of a capture card's inputs.")

    @field_validator("size")
    @classmethod
    def _is_size(cls, size: tuple[int, int] | None) -> tuple[int, int] | None:
        if size is not None:
            try:
                check_size(*size)
            except InputError:
                raise ValueError("is not a size") from None
        return size

    @field_validator("fps")
    @classmethod
    def _is_rate(cls, fps: Fraction | None) -> Fraction | None:
        if fps is not None and not 0 < fps <= _MAX_FPS:
            raise ValueError("is out of range")
        return fps

    @field_validator("format")
    @classmethod
    def _is_code(cls, code: str | None) -> str | None:
        if code is not None and not re.fullmatch("[A-Za-z0-9 _-]{1,12}", code):
            raise ValueError("is not a format's name")
        return code


class V4l2(Source):
    """A camera of the Linux kernel, whose driver writes straight into the slots.

    ``v4l2:///dev/video0?size=1920x1080&fps=60&format=NV12``; better by a path that stays, ``v4l2:///dev/v4l/by-id/…``
    (``pinhole cameras`` lists them). A node that was opened once is known by its make, serial number and place: after a
    replug the same camera is found under any number, and another one is never taken for it.

    Where the driver takes foreign memory (USERPTR) it is given slots, laid out as it wants, and nothing is copied. Else
    its own buffers (MMAP) are copied into the slots, once, counted; JPEG is decoded into them.

    Live. Stamped by the driver where its clock is the monotonic one. ``details`` in the camera's state say what was
    asked for, what was agreed, whose memory is used and why, and what the stamps mark.
    """

    scheme = "v4l2"
    Config = V4l2Config
    example = "v4l2:///dev/video0?size=1920x1080&fps=60&format=NV12"
    location = "device"

    config: V4l2Config
    # Tests put others in their place.
    system: System | None = None
    dev, sysfs = DEV, SYSFS

    def __init__(self, uri: str, config: V4l2Config) -> None:
        super().__init__(uri, config)
        parts = parse_uri(uri)
        self.path = str(device_path(int(parts.authority)) if parts.authority else parts.local_path())
        self._device: CameraDevice | None = None
        self._queue: BufferQueue | None = None
        self._identity: Identity | None = None
        self._seen: frozenset[tuple[str, int]] = frozenset()
        self._agreed: Negotiated | None = None
        self._layout: Layout | None = None
        self._needed: tuple[int, ...] = ()  # bytes of each memory that a whole picture has; none for JPEG
        self._unpack: Unpacker | None = None
        self._buf_type = abi.CAPTURE
        self._fps: float | None = None
        self._in_slots = True  # the driver writes them
        self._why_copied: str | None = None
        self._provider: SlotProvider | None = None
        self._held: dict[int, WriteSlot] = {}  # by identity: every slot that this has
        self._stamps = Stamps()
        self._details: dict[str, Any] = {}

    @classmethod
    def devices(cls) -> list[dict[str, Any]]:
        return [one.to_json() for one in list_cameras(cls.system, cls.dev, cls.sysfs)]

    # ---- open

    def open(self) -> SourceFormat:
        self.close()
        self._interrupted.clear()
        self._seen = self._nodes_now()
        path = self._find_path()
        try:
            device = self._device = CameraDevice(path, self.system)
        except OSError as error:
            raise SourceError(open_problem(path, error)) from None
        try:
            self._check_identity(device)
            able = device.abilities()
            if not able.capture or not able.streaming:
                raise SourceError(f"{path} ({able.card}) captures no pictures; pinhole cameras lists those that do")
            self._buf_type = able.buf_type
            select_input(device, self.config.input)
            device.subscribe_source_change()
            self._details = {"device": path, "name": able.card, "driver": able.driver, "bus": able.bus}
            return self._settle(device)
        except RequestError as error:
            raise SourceError(request_problem(path, error)) from None
        except (UnfitCameraError, InputError) as error:
            raise SourceError(f"{path}: {error}") from None

    def _find_path(self) -> str:
        """Where the camera is now: a node's number may change, so one that was seen before is looked for."""
        identity = self._identity
        if identity is None or not self._is_node:
            return self.path
        found = find(identity, self.system, self.dev, self.sysfs)
        if found is None:
            raise SourceError(f"{identity}, which was {self.path}, is away; plug it in again")
        return str(found)

    def _check_identity(self, device: CameraDevice) -> None:
        identity = identity_of(device, self.sysfs)
        if self._identity is not None and not identity.same_camera(self._identity) and self._is_node:
            raise SourceError(f"{device.path} is now {identity}; waiting for {self._identity}")
        self._identity = identity

    def _settle(self, device: CameraDevice) -> SourceFormat:
        """Agree on a format and make the queue."""
        config = self.config
        wish = Wish(config.size, config.fps, config.format)
        agreed = self._agreed = negotiate(device, self._buf_type, wish)
        rate = set_rate(device, self._buf_type, config.fps)
        self._fps = float(rate) if rate is not None and 0 < rate <= _MAX_FPS else None
        self._make_queue(device, agreed)
        self._say(agreed)
        return self._format()

    def _make_queue(self, device: CameraDevice, agreed: Negotiated) -> None:
        self._unpack = None
        self._layout = None if agreed.decoded else layout_of(agreed)
        self._needed = () if self._layout is None else self._layout.needed_bytes
        offsets = (0,) if self._layout is None else self._layout.offsets
        self._in_slots = self._in_slots and not agreed.decoded and self.config.io != "mmap"
        if agreed.decoded:
            self._why_copied = f"{agreed.code} is decoded"
        elif self.config.io == "mmap":
            self._why_copied = "io=mmap was asked for"
        if self._in_slots:
            try:
                self._queue = BufferQueue(device, self._buf_type, abi.USERPTR, agreed.sizes, offsets, abi.MAX_BUFFERS)
                return
            except RequestError as error:
                if error.number not in _REFUSES_MEMORY:
                    raise
                self._refused(f"the driver takes no memory but its own ({error})")
        self._queue = BufferQueue(device, self._buf_type, abi.MMAP, agreed.sizes, offsets, self.config.queue + 1)
        if self._layout is not None:
            self._unpack = Unpacker(self._layout, self._queue.arrays)

    def _refused(self, why: str) -> None:
        if self.config.io == "userptr":
            raise SourceError(f"{self._details['device']}: io=userptr cannot be had: {why}")
        self._in_slots, self._why_copied = False, why

    def _format(self) -> SourceFormat:
        assert self._agreed is not None
        image, layout = self._agreed.image(), None
        if self._in_slots and self._layout is not None:
            layout = SlotLayout(self._layout.spec, self._layout.nbytes, self.config.queue)
        elif self._agreed.decoded:
            layout = SlotLayout(image, image.nbytes)  # rows one behind the other, as the decoder writes them
        return SourceFormat(image, self._fps, live=True, layout=layout, details=self._details)

    def _say(self, agreed: Negotiated) -> None:
        config = self.config
        size = None if config.size is None else f"{config.size[0]}x{config.size[1]}"
        self._stamps = Stamps()
        self._details.update(
            requested={"size": size, "fps": None if config.fps is None else float(config.fps), "format": config.format},
            negotiated={
                "size": f"{agreed.width}x{agreed.height}", "fps": self._fps, "format": agreed.code.strip(),
                "strides": list(agreed.strides), "buffer_bytes": list(agreed.sizes),
            },
            memory="slots (USERPTR)" if self._in_slots else "the driver's (MMAP)",
            copies=None if self._in_slots else self._why_copied,
            stamps=self._stamps.details,
        )  # fmt: skip
        log.info(
            "%s: %s, %dx%d %s at %s fps, %s",
            self._details["device"], self._details["name"], agreed.width, agreed.height, agreed.code.strip(),
            "unknown" if self._fps is None else f"{self._fps:g}",
            "written into the slots" if self._in_slots else f"copied into the slots: {self._why_copied}",
        )  # fmt: skip

    # ---- read

    def read(self, slots: SlotProvider) -> None:
        """Move one frame on. The driver has ``queue`` slots or buffers meanwhile; they are published in its order."""
        if self._device is None or self._queue is None:
            raise SourceError(f"{self.path} is not open")
        self._provider = slots
        try:
            if not self._queue.streaming and not self._begin(slots):
                return
            taken = self._next()
            if taken is None:
                self._change_format()
            elif self._in_slots:
                self._pass_on(slots, taken)
            else:
                self._copy_out(slots, taken)
        except RequestError as error:
            path = self._details["device"]
            raise SourceError(request_problem(path, error)) from None

    def fill(self, view: ImageView) -> Capture:
        raise NotImplementedError("read() is overridden: the driver fills slots itself")

    def _begin(self, slots: SlotProvider) -> bool:
        """Queue and start; False if there is no slot now."""
        queue = self._queue
        assert queue is not None
        if not self._in_slots:
            for number in range(queue.count):
                queue.queue_number(number)
            queue.start()
            return True
        while queue.queued < self.config.queue and (slot := self._acquire(slots)) is not None:
            try:
                queue.queue_slot(slot.view.address, slot)
            except RequestError as error:
                if error.number not in _REFUSES_MEMORY or queue.queued:
                    raise
                self._fall_back(f"the driver does not take the slots' memory ({error})")
        if not queue.queued:
            return False
        queue.start()
        return True

    def _fall_back(self, why: str) -> None:
        """Go on with the driver's own buffers. Raises FormatChanged: slots then lie as others do."""
        assert self._device is not None
        assert self._agreed is not None
        self._end_queue()
        self._refused(why)
        self._make_queue(self._device, self._agreed)
        self._say(self._agreed)
        raise FormatChanged(self._format())

    def _next(self) -> Dequeued | None:
        """Wait for the next buffer; None: the format is another one now. Raises SourceError, RequestError."""
        device, queue = self._device, self._queue
        assert device is not None
        assert queue is not None
        limit_s = max(FIRST_FRAME_S, 10 / self._fps if self._fps else 0.0)
        deadline = time.monotonic() + limit_s
        while True:
            events = device.wait(deadline - time.monotonic())
            if self._interrupted.is_set():
                raise SourceError("interrupted")
            if events & select.POLLPRI and abi.EVENT_SOURCE_CHANGE in device.take_events():
                return None
            if events:
                try:
                    taken = queue.take()
                except RequestError as error:
                    if error.number == errno.EPIPE:  # the last of a format
                        return None
                    raise
                if taken is not None:
                    return taken
            if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise SourceError(f"{device.path} has gone, or its driver gave up")
            if time.monotonic() >= deadline:
                raise SourceError(f"{device.path} delivered no frame for {limit_s:g} s")

    def _pass_on(self, slots: SlotProvider, taken: Dequeued) -> None:
        """Publish a slot that the driver filled, and give it another one; with none free the frame is dropped."""
        queue, slot = self._queue, taken.owner
        assert queue is not None
        if (fault := self._fault(slots, taken)) is not None:
            queue.queue_slot(slot.view.address, slot)
            raise fault
        other = self._acquire(slots)
        if other is None:
            queue.queue_slot(slot.view.address, slot)
            return
        del self._held[id(slot)]
        slots.publish(slot, self._stamps.capture(taken, 0))
        queue.queue_slot(other.view.address, other)
        if queue.queued < self.config.queue and (more := self._acquire(slots)) is not None:  # it began with fewer
            queue.queue_slot(more.view.address, more)

    def _copy_out(self, slots: SlotProvider, taken: Dequeued) -> None:
        """Copy or decode a driver's buffer into a slot, and give it back to the driver in any case."""
        queue = self._queue
        assert queue is not None
        slot: WriteSlot | None = None
        try:
            if (fault := self._fault(slots, taken)) is not None:
                raise fault
            capture_at = self._stamps.capture(taken, 0)
            slot = self._acquire(slots)
            if slot is None:
                return
            if self._unpack is not None:
                copied = self._unpack.into(slot.view, taken.index)
            else:
                data: Pixels = queue.arrays[taken.index][0]
                decode_into(data[: taken.used[0]], slot.view)
                copied = slot.view.spec.pixel_bytes
            del self._held[id(slot)]
            slots.publish(slot, self._stamps.with_copy(capture_at, copied))
        except FrameCorrupt as error:
            if slot is not None:
                del self._held[id(slot)]
                slots.give_back(slot, error.reason)
            raise
        finally:
            queue.queue_number(taken.index)

    def _fault(self, slots: SlotProvider, taken: Dequeued) -> FrameCorrupt | None:
        """What is wrong with a frame; counts those that the driver lost before it."""
        if gap := self._stamps.gap(taken.sequence):
            slots.lost("driver", gap)
        if taken.damaged:
            return FrameCorrupt("corrupt", "the driver marks the frame as damaged")
        for used, needed in zip(taken.used, self._needed, strict=False):
            if used < needed:
                return FrameCorrupt("short", f"a frame of {used} bytes where {needed} belong to the picture")
        return None

    def _acquire(self, slots: SlotProvider) -> WriteSlot | None:
        slot = slots.acquire()
        if slot is not None:
            self._held[id(slot)] = slot
        return slot

    def _change_format(self) -> None:
        """What the camera sees has changed: agree anew. Raises FormatChanged, unless all is as it was."""
        assert self._device is not None
        before = self._format()
        self._end_queue()
        try:
            select_input(self._device, None)
            after = self._settle(self._device)
        except (UnfitCameraError, InputError) as error:
            raise SourceError(f"{self._details['device']}: {error}") from None
        if after != before:
            raise FormatChanged(after)

    # ---- close

    def _end_queue(self) -> None:
        """Stop the driver, then give back the slots that it had: it writes nothing any more."""
        self._unpack = None
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
        held, self._held = self._held, {}
        for slot in held.values():
            assert self._provider is not None
            self._provider.give_back(slot)

    def interrupt(self) -> None:
        self._interrupted.set()
        if (device := self._device) is not None:
            device.wake()

    def close(self) -> None:
        device = self._device
        try:
            self._end_queue()
        finally:
            self._device = None
            if device is not None:
                device.close()

    def follow(self, previous: Source) -> None:
        if isinstance(previous, V4l2):
            self._identity = previous._identity
            self._in_slots, self._why_copied = previous._in_slots, previous._why_copied

    def returned(self) -> bool:
        seen, self._seen = self._seen, self._nodes_now()
        return bool(self._seen - seen)

    @property
    def _is_node(self) -> bool:
        """It was named by a number, which says nothing of which camera it is."""
        return os.path.dirname(self.path) == str(self.dev)

    def _nodes_now(self) -> frozenset[tuple[str, int]]:
        """The video nodes there are; a camera that comes back under the same name is another entry."""
        found = []
        for path in nodes(self.dev):
            try:
                found.append((path.name, os.stat(path).st_ino))
            except OSError:
                continue
        return frozenset(found)
