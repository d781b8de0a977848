from __future__ import annotations

import logging
import os
import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from kernels.errors import InputError
from kernels.formats import GRAY8
from kernels.image import ImageSpec, ImageView, check_size
from pipeline.frame import Capture
from pipeline.sources._capture_problem import device_path
from pipeline.sources._fields import RATE_ALLOWED, SIZE_ALLOWED, parse_rate, parse_size
from pipeline.sources._uri import parse_uri
from pipeline.sources.base import (
    FormatChanged,
    SlotLayout,
    SlotProvider,
    Source,
    SourceConfig,
    SourceError,
    SourceFormat,
)
from pipeline.v4l2 import abi
from pipeline.v4l2.cameras import DEV, SYSFS, Identity, find, identity_of, list_cameras, nodes
from pipeline.v4l2.device import CameraDevice, RequestError
from pipeline.v4l2.negotiate import UnfitCameraError, Wish, negotiate, select_input, set_rate
from pipeline.v4l2.pixels import Layout, Negotiated, layout_of
from pipeline.v4l2.problems import open_problem, request_problem
from pipeline.v4l2.stream import MemoryRefused, Stream
from pipeline.v4l2.system import System

log = logging.getLogger("pinhole.source")

FIRST_FRAME_S = 2.8  # below what a camera gives a read

_MAX_FPS = 1000


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
        self._stream: Stream | None = None
        self._identity: Identity | None = None
        self._seen: frozenset[tuple[str, int]] = frozenset()
        self._buf_type = abi.CAPTURE
        self._refusal: str | None = None  # how the driver said that it does not write to slots
        self._format = SourceFormat(ImageSpec.make(GRAY8, 1, 1), None, live=True)
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
        """Agree on a format, and make the buffers for it."""
        config = self.config
        agreed = negotiate(device, self._buf_type, Wish(config.size, config.fps, config.format))
        rate = set_rate(device, self._buf_type, config.fps)
        fps = float(rate) if rate is not None and 0 < rate <= _MAX_FPS else None
        layout = None if agreed.decoded else layout_of(agreed)
        stream = self._stream = self._make_stream(device, agreed, layout)
        self._say(agreed, fps, stream)
        image = agreed.image()
        slots: SlotLayout | None = None
        if layout is None:
            slots = SlotLayout(image, image.nbytes)  # rows one behind the other, as the decoder writes them
        elif stream.in_slots:
            slots = SlotLayout(layout.spec, layout.nbytes, config.queue)
        self._format = SourceFormat(image, fps, live=True, layout=slots, details=self._details)
        return self._format

    def _make_stream(self, device: CameraDevice, agreed: Negotiated, layout: Layout | None) -> Stream:
        queue = self.config.queue
        if not agreed.decoded and self.config.io != "mmap" and self._refusal is None:
            try:
                return Stream(device, self._buf_type, agreed, layout, queue, in_slots=True)
            except MemoryRefused as error:
                self._note_refusal(error)
        return Stream(device, self._buf_type, agreed, layout, queue, in_slots=False)

    def _note_refusal(self, error: MemoryRefused) -> None:
        if self.config.io == "userptr":
            raise SourceError(f"{self._details['device']}: io=userptr cannot be had: {error}") from None
        self._refusal = str(error)

    def _say(self, agreed: Negotiated, fps: float | None, stream: Stream) -> None:
        config = self.config
        size = None if config.size is None else f"{config.size[0]}x{config.size[1]}"
        copies: str | None = None
        if not stream.in_slots:
            copies = f"{agreed.code} is decoded" if agreed.decoded else self._refusal or "io=mmap was asked for"
        self._details.update(
            requested={"size": size, "fps": None if config.fps is None else float(config.fps), "format": config.format},
            negotiated={
                "size": f"{agreed.width}x{agreed.height}", "fps": fps, "format": agreed.code.strip(),
                "strides": list(agreed.strides), "buffer_bytes": list(agreed.sizes),
            },
            memory="slots (USERPTR)" if stream.in_slots else "the driver's (MMAP)",
            copies=copies,
            stamps=stream.stamps.details,
        )  # fmt: skip
        log.info(
            "%s: %s, %dx%d %s at %s fps, %s",
            self._details["device"], self._details["name"], agreed.width, agreed.height, agreed.code.strip(),
            "unknown" if fps is None else f"{fps:g}",
            "written into the slots" if copies is None else f"copied into the slots: {copies}",
        )  # fmt: skip

    # ---- read

    def read(self, slots: SlotProvider) -> None:
        """Move one frame on. The driver has ``queue`` slots or buffers meanwhile; they are published in its order."""
        stream, fps = self._stream, self._format.fps
        if stream is None:
            raise SourceError(f"{self.path} is not open")
        try:
            if not stream.begin(slots):
                return
            taken = stream.wait(max(FIRST_FRAME_S, 10 / fps if fps else 0.0), self._interrupted.is_set)
            if taken is None:
                self._settle_again()
            else:
                stream.hand_on(slots, taken)
        except MemoryRefused as error:
            self._note_refusal(error)
            self._settle_again()
        except RequestError as error:
            raise SourceError(request_problem(self._details["device"], error)) from None

    def fill(self, view: ImageView) -> Capture:
        raise NotImplementedError("read() is overridden: the driver fills slots itself")

    def _settle_again(self) -> None:
        """Agree anew. Raises FormatChanged, unless all is as it was."""
        assert self._device is not None
        before = self._format
        self._end_stream()
        try:
            select_input(self._device, None)
            after = self._settle(self._device)
        except RequestError as error:
            raise SourceError(request_problem(self._details["device"], error)) from None
        except (UnfitCameraError, InputError) as error:
            raise SourceError(f"{self._details['device']}: {error}") from None
        if after != before:
            raise FormatChanged(after)

    # ---- close

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def interrupt(self) -> None:
        self._interrupted.set()
        if (device := self._device) is not None:
            device.wake()

    def close(self) -> None:
        device = self._device
        try:
            self._end_stream()
        finally:
            self._device = None
            if device is not None:
                device.close()

    def follow(self, previous: Source) -> None:
        if isinstance(previous, V4l2):
            self._identity = previous._identity
            self._refusal = previous._refusal

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
