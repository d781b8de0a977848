"""All cameras of a process on one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.device import Device
from pipeline.camera import Camera, CameraConfig, SourceFactory
from pipeline.stats import CameraHealth

MAX_CAMERAS = 64


class Engine:
    """Owns the device and the cameras on it. Its methods may be called from any thread."""

    def __init__(
        self, device: Device, *, max_cameras: int = MAX_CAMERAS, source_factory: SourceFactory | None = None
    ) -> None:
        raise NotImplementedError

    @property
    def device(self) -> Device:
        raise NotImplementedError

    @property
    def cameras(self) -> Mapping[str, Camera]:
        """A snapshot, by name, in the order of addition."""
        raise NotImplementedError

    def get(self, name: str, field: str = "camera") -> Camera:
        """Raises UnknownNameError."""
        raise NotImplementedError

    def add(self, config: CameraConfig, start: bool = True) -> Camera:
        """Raises InputError: the name is taken, there are too many, or the URI is not acceptable."""
        raise NotImplementedError

    def remove(self, name: str, timeout_s: float = 2.0) -> bool:
        """True if it ended in time and gave everything back. Raises UnknownNameError."""
        raise NotImplementedError

    def start(self) -> None:
        """Start every camera that is stopped."""
        raise NotImplementedError

    def stop(self, deadline_s: float = 2.0) -> list[str]:
        """Stop all cameras in parallel, then close the device; what did not end in time, in words."""
        raise NotImplementedError

    def health(self) -> dict[str, CameraHealth]:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        raise NotImplementedError
