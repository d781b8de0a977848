"""Which rendition of a camera a client wants, one such picture, and how it is made."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from kernels.color_cpu import to_working
from kernels.device import CudaDevice, Device
from kernels.errors import DeviceFailedError, PinholeError
from kernels.formats import working_format
from kernels.image import VALUE_TYPES, ImageView, Values
from kernels.op import Scratch
from kernels.profiler import RANGES
from kernels.wide_cpu import narrow
from pipeline.demand import Place
from pipeline.encoders import device_encoder_for, encoder_for
from pipeline.encoders.base import DEFAULT_QUALITY, PixelEncoder
from pipeline.lease import ReadLease
from pipeline.rendition import DeviceRendition
from pipeline.scaling import Downscaler, scaled_size
from pipeline.state import CameraState
from service.placeholder import DEFAULT_SIZE, draw_placeholder, printable

log = logging.getLogger("pinhole.live")

START_GRACE_S = 1.0  # how long a client waits for a first picture before it is told why there is none

_SHOWS_FRAMES = (CameraState.RUNNING, CameraState.ENDED)


class View(str, Enum):
    """``result``: what the chain made. ``source``: what the camera wrote."""

    RESULT = "result"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Variant:
    """One rendition: frames of it are encoded at most once, however many clients look.

    ``width`` None is full size. Use :meth:`make`: equal renditions are then equal variants.
    """

    camera: str
    view: View
    format: str
    quality: int
    width: int | None

    def __str__(self) -> str:
        quality = f" q{self.quality}" if self.quality else ""
        return f"{self.view.value} {self.format}{quality}{f' {self.width} px' if self.width else ''}"

    @classmethod
    def make(
        cls,
        camera: str,
        *,
        view: View = View.RESULT,
        format: str = "jpg",
        quality: int = DEFAULT_QUALITY,
        width: int | None = None,
    ) -> Variant:
        """Raises UnknownNameError for a format that is not known."""
        return cls(camera, view, format, quality if encoder_for(format).uses_quality else 0, width)


@dataclass(frozen=True, slots=True)
class Picture:
    """Encoded bytes and what is known of the frame they show. Times are ``time.monotonic_ns()``.

    ``placeholder`` says why it is not a camera's picture ("" for a real one); it then has no sequence and no times.
    """

    data: bytes
    media_type: str
    width: int
    height: int
    pixel_format: str
    encoder: str
    encode_ns: int = 0
    encoded_ns: int = 0
    sequence: int = -1
    captured_ns: int = 0
    wall_ns: int = 0
    chain_version: int = 0
    placeholder: str = ""

    def headers(self, now_ns: int | None = None) -> list[tuple[str, str]]:
        """The frame headers of a response or a part; the age is that of this moment."""
        size = [("X-Frame-Width", str(self.width)), ("X-Frame-Height", str(self.height))]
        if self.placeholder:
            return [*size, ("X-Pinhole-Placeholder", self.placeholder)]
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        return [
            ("X-Timestamp", f"{self.wall_ns / 1e9:.6f}"),
            ("X-Frame-Sequence", str(self.sequence)),
            ("X-Frame-Age-Ms", f"{max(0, now_ns - self.captured_ns) / 1e6:.1f}"),
            ("X-Chain-Version", str(self.chain_version)),
            *size,
        ]


class PictureSource(Protocol):
    """What rendering needs of a camera."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> CameraState: ...
    @property
    def cause(self) -> str | None: ...
    @property
    def device(self) -> Device: ...
    def claim(self, place: Place) -> Callable[[], None]: ...
    def count_encoded(self, nbytes: int) -> None: ...
    def latest(self) -> ReadLease | None: ...
    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True)
class _Encoded:
    """``full_size`` is that of the frame in px, before it was scaled."""

    data: bytes
    full_size: tuple[int, int]
    pixel_format: str
    encoder: str


class Renderer:
    """Makes one variant's pictures; keeps its scratch between them. Any thread, but they wait for each other.

    Takes the lease and gives it back within one call in one thread, so that nothing that happens to the client can
    lose a slot. Where the camera's device writes the format itself, pixels stay there, until it fails once.
    """

    def __init__(self, camera: PictureSource, variant: Variant, encoder: PixelEncoder | None = None) -> None:
        self._camera = camera
        self._variant = variant
        self._encoder: PixelEncoder = encoder_for(variant.format) if encoder is None else encoder
        self._scale = Downscaler(variant.width)
        self._scratch = Scratch()
        self._born_ns = time.monotonic_ns()
        self._sequence = -1  # of the last frame that was rendered
        self._placeholder = ""  # what is shown now, if it is not a frame
        self._full_size = DEFAULT_SIZE
        self._lock = threading.Lock()
        self._closed = False
        self._rendition: DeviceRendition | None = None
        self._unclaim: Callable[[], None] | None = None
        device = camera.device
        on_device = device_encoder_for(variant.format, device)
        if on_device is not None and isinstance(device, CudaDevice):
            of_source = variant.view is View.SOURCE
            self._device_encoder = on_device
            self._rendition = DeviceRendition(device, on_device, of_source=of_source, width=variant.width)
            self._unclaim = None if of_source else camera.claim(Place.DEVICE)

    def close(self) -> None:
        """Release what is held on a device; blocks while a picture is being made. Idempotent."""
        with self._lock:
            self._closed = True
            self._leave_device()

    def _leave_device(self) -> None:
        rendition, self._rendition = self._rendition, None
        unclaim, self._unclaim = self._unclaim, None
        if unclaim is not None:
            unclaim()
        if rendition is not None:
            rendition.close()

    def render(self) -> Picture | None:
        """The newest frame, or the placeholder; None if the last call's picture is still right. Blocks to encode.

        Raises:
            InputError: the picture cannot be written in this format.
            DeviceFailedError: the GPU was lost, or does not give a result back.
        """
        with self._lock:
            return None if self._closed else self._render()

    def _render(self) -> Picture | None:
        camera = self._camera
        state = camera.state
        if state in _SHOWS_FRAMES and (lease := camera.latest()) is not None:
            with lease:
                # After a loss the camera still holds the frame before it: not shown again as if it were live.
                if lease.frame.sequence > self._sequence or (self._placeholder and state is CameraState.ENDED):
                    with RANGES.range(camera.name, "encode", lease.frame.sequence):
                        return self._frame(lease)
                return None
        if state not in _SHOWS_FRAMES and (held := camera.latest()) is not None:
            with held:  # also where it was never shown: when the camera is back, it is not what the camera sees now
                self._sequence = max(self._sequence, held.frame.sequence)
        young = time.monotonic_ns() - self._born_ns < START_GRACE_S * 1e9
        if young and state in (CameraState.STARTING, CameraState.RUNNING):
            return None
        reason = no_picture_reason(state, camera.cause)
        return None if reason == self._placeholder else self._draw(reason)

    def _frame(self, lease: ReadLease) -> Picture:
        frame, variant = lease.frame, self._variant
        started_ns = time.monotonic_ns()
        made = self._on_device(lease) or self._on_host(lease)
        encoded_ns = time.monotonic_ns()
        self._sequence, self._placeholder = frame.sequence, ""
        self._full_size = made.full_size
        width, height = scaled_size(*self._full_size, variant.width)
        return Picture(
            data=made.data, media_type=self._encoder.media_type, width=width, height=height,
            pixel_format=made.pixel_format, encoder=made.encoder,
            encode_ns=encoded_ns - started_ns, encoded_ns=encoded_ns,
            sequence=frame.sequence, captured_ns=frame.capture.captured_ns, wall_ns=frame.capture.wall_ns,
            chain_version=frame.chain_version,
        )  # fmt: skip

    def _on_device(self, lease: ReadLease) -> _Encoded | None:
        """Encoded there; None where this variant is not, or not any more."""
        if (rendition := self._rendition) is None:
            return None
        try:
            data, spec = rendition.encode(lease, self._variant.quality)
        except PinholeError as error:
            if isinstance(error, DeviceFailedError) and error.sticky:
                raise
            log.warning("%s: %s; the CPU encodes it from now on", self._camera.name, error)
            self._leave_device()
            return None
        self._camera.count_encoded(len(data))
        pixel_format = working_format(spec.format.channels, 8).name
        return _Encoded(data, (spec.width, spec.height), pixel_format, self._device_encoder.name)

    def _on_host(self, lease: ReadLease) -> _Encoded:
        view = lease.result if self._variant.view is View.RESULT else lease.source
        pixels, pixel_format = self._in_8_bits(*self._pixels(view))
        data = self._encoder.encode(pixels, self._variant.quality)
        return _Encoded(data, (view.spec.width, view.spec.height), pixel_format, self._encoder.name)

    def _in_8_bits(self, pixels: Values, pixel_format: str) -> tuple[Values, str]:
        """The picture as it is, or in 8 bits (v / 257, rounded) for an encoder that knows no more."""
        if pixels.dtype != np.uint16 or self._encoder.takes_16_bit:
            return pixels, pixel_format
        eight = self._scratch.array("eight", pixels.shape, np.uint8)
        narrow(pixels, eight)
        return eight, "GRAY8" if pixels.ndim == 2 else "BGR8"

    def _pixels(self, view: ImageView) -> tuple[Values, str]:
        """What the encoder gets, and its pixel format: native planes as they are for npy, else grey or BGR."""
        spec, format = view.spec, view.spec.format
        if self._variant.view is View.RESULT:
            return self._scale(view.plane(0)), format.name
        if self._variant.format == "npy":
            return view.packed(), format.name
        shape = (spec.height, spec.width) if format.channels == 1 else (spec.height, spec.width, 3)
        working = self._scratch.array("working", shape, VALUE_TYPES[format.depth])
        to_working(view, working, self._scratch)
        return self._scale(working), working_format(format.channels, format.depth).name

    def _draw(self, reason: str) -> Picture:
        self._placeholder = reason
        size = scaled_size(*self._full_size, self._variant.width)
        picture = draw_placeholder(self._camera.name, reason, size)
        return Picture(
            data=self._encoder.encode(picture, self._variant.quality), media_type=self._encoder.media_type,
            width=size[0], height=size[1], pixel_format="BGR8", encoder=self._encoder.name, placeholder=reason,
        )  # fmt: skip


def no_picture_reason(state: CameraState, cause: str | None) -> str:
    """In one printable line, why a camera shows no picture."""
    return printable(f"{state.value}: {cause}" if cause else f"{state.value}: no picture yet")
