"""All cameras of a process on one device."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernels.device import Device
from kernels.errors import InputError, PinholeError, UnknownNameError
from pipeline.camera import Camera, CameraConfig, CameraState, SourceFactory
from pipeline.devices import Devices
from pipeline.sources import make_source
from pipeline.stats import CameraHealth

log = logging.getLogger("pinhole.engine")

MAX_CAMERAS = 64


class EngineStoppedError(PinholeError):
    """The engine is stopped and takes no more cameras."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; no camera can be added or started")


class Engine:
    """Owns the device and the cameras on it. Its methods may be called from any thread."""

    def __init__(
        self, device: Device, *, max_cameras: int = MAX_CAMERAS, source_factory: SourceFactory = make_source
    ) -> None:
        self.device = device
        self._devices = Devices(device)
        self.max_cameras = max_cameras
        self._source_factory = source_factory
        self._lock = threading.Lock()  # guards the three below; a camera is started under it, stopped without
        self._cameras: dict[str, Camera] = {}
        self._leaving: list[Camera] = []  # removed, but did not end in time
        self._stopped = False

    @property
    def cameras(self) -> Mapping[str, Camera]:
        """A snapshot, by name, in the order of addition."""
        with self._lock:
            return dict(self._cameras)

    @property
    def gpu(self) -> Device | None:
        """A device on the GPU, also where only some camera's strategy needs one; None while there is none."""
        return self._devices.gpu()

    @property
    def stopped(self) -> bool:
        """True once ``stop`` was called."""
        return self._stopped

    def get(self, name: str, field: str = "camera") -> Camera:
        """The camera of that name.

        Raises:
            UnknownNameError: there is none; lists the known ones.
        """
        cameras = self.cameras
        try:
            return cameras[name]
        except KeyError:
            raise UnknownNameError(field, "camera", name, cameras) from None

    def add(self, config: CameraConfig, start: bool = True, *, check: bool = True) -> Camera:
        """A new camera, started unless told otherwise.

        ``check`` looks now whether its source can be there (see :meth:`Source.check`: a file that is missing); without
        it, and for cameras that are away, that shows in the state, and is tried again and again.

        Raises:
            InputError: the name is taken, there are too many, the URI is not acceptable, its memory strategy is not
                to be had here, or ``check`` found a fault.
            EngineStoppedError
        """
        self._check_room(config.name)
        camera = Camera(config, self._devices.get(config.memory), self._source_factory)
        if check:
            camera.check()
        with self._lock:
            self._check_room_locked(config.name)
            if start:
                camera.start()
            self._cameras[config.name] = camera
        return camera

    def _check_room(self, name: str) -> None:
        with self._lock:
            self._check_room_locked(name)

    def _check_room_locked(self, name: str) -> None:
        if self._stopped:
            raise EngineStoppedError
        if name in self._cameras:
            raise InputError("name", f"there is already a camera {name!r}", "a name that is not taken")
        if len(self._cameras) >= self.max_cameras:
            raise InputError("cameras", f"there are already {len(self._cameras)}", f"at most {self.max_cameras}")

    def remove(self, name: str, timeout_s: float = 2.0) -> bool:
        """Stop a camera and forget it; True if it ended in time and gave everything back.

        Raises:
            UnknownNameError: there is none of that name (any more).
        """
        with self._lock:
            camera = self._cameras.pop(name, None)
            known = list(self._cameras)
        if camera is None:
            raise UnknownNameError("camera", "camera", name, known)
        ended = camera.stop(timeout_s)
        if not ended:
            with self._lock:
                self._leaving.append(camera)
        return ended

    def start(self) -> None:
        """Start every camera that is stopped.

        Raises:
            EngineStoppedError
        """
        with self._lock:
            if self._stopped:
                raise EngineStoppedError
            for camera in self._cameras.values():
                if camera.state is CameraState.STOPPED:
                    camera.start()

    def stop(self, deadline_s: float = 2.0) -> list[str]:
        """Stop all cameras in parallel, then close the device. What did not end in time, in words; empty if all did.

        The device stays open under whatever still uses it. May be called again.
        """
        deadline = time.monotonic() + deadline_s
        with self._lock:
            self._stopped = True
            cameras = [*self._cameras.values(), *self._leaving]
        if cameras:
            with ThreadPoolExecutor(len(cameras), thread_name_prefix="stop") as pool:
                done = list(pool.map(lambda camera: camera.stop(max(0.0, deadline - time.monotonic())), cameras))
        else:
            done = []
        late = [f"camera {camera.name}" for camera, ended in zip(cameras, done, strict=True) if not ended]
        if late:
            log.error("did not end within %g s: %s", deadline_s, ", ".join(late))
        else:
            self._devices.close()
        return late

    def health(self) -> dict[str, CameraHealth]:
        """Each camera's health, by name."""
        return {name: camera.health() for name, camera in self.cameras.items()}

    def describe(self) -> dict[str, Any]:
        """The device, and each camera's state and source: plain data, without credentials."""
        return {
            "device": self.device.describe(),
            "cameras": {
                name: {"state": statistics.state.value, "cause": statistics.cause, "uri": statistics.uri}
                for name, statistics in ((name, camera.statistics()) for name, camera in self.cameras.items())
            },
        }
