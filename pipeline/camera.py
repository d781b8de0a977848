"""One camera: two threads, a ring, a chain that can change while it runs, and a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernels.chain import Chain
from kernels.device import Device
from pipeline.config import CameraConfig
from pipeline.lease import ReadLease
from pipeline.sources.base import Source
from pipeline.state import CameraState, StateError
from pipeline.stats import CameraHealth, CameraStatistics

__all__ = ["Camera", "CameraConfig", "CameraHealth", "CameraState", "CameraStatistics", "StateError"]

SourceFactory = Callable[[str], Source]


class Camera:
    """One camera. Its methods may be called from any thread."""

    def __init__(self, config: CameraConfig, device: Device, source_factory: SourceFactory | None = None) -> None:
        """Check the URI and start nothing. Raises InputError."""
        raise NotImplementedError

    @property
    def config(self) -> CameraConfig:
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def state(self) -> CameraState:
        raise NotImplementedError

    @property
    def cause(self) -> str | None:
        raise NotImplementedError

    @property
    def chain(self) -> Chain:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def stop(self, timeout_s: float = 2.0) -> bool:
        raise NotImplementedError

    def set_chain(self, ops: Sequence[Mapping[str, Any]] | Chain) -> Chain:
        raise NotImplementedError

    def set_params(self, index: int, params: Mapping[str, Any]) -> Chain:
        raise NotImplementedError

    def latest(self) -> ReadLease | None:
        raise NotImplementedError

    def wait_newer(self, sequence: int, timeout_s: float) -> ReadLease | None:
        raise NotImplementedError

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        raise NotImplementedError

    def statistics(self) -> CameraStatistics:
        raise NotImplementedError

    def health(self) -> CameraHealth:
        raise NotImplementedError
