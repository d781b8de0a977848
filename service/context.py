"""What the routes share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from pipeline.camera import Camera, CameraHealth, CameraStatistics
from pipeline.engine import Engine
from service.live import Hub
from service.profile import Profiler
from service.settings import Settings
from service.tally import LiveStatistics
from service.whep import Sessions


@dataclass(slots=True)
class Context:
    """What there is one of in the process; ``memory_reason`` says why the device is the one it is."""

    engine: Engine
    hub: Hub
    settings: Settings
    profiler: Profiler
    sessions: Sessions
    memory_reason: str = ""
    started_ns: int = field(default_factory=time.monotonic_ns)


@dataclass(frozen=True, slots=True)
class Observed:
    """One camera's snapshots, of about one moment."""

    camera: Camera
    statistics: CameraStatistics
    health: CameraHealth
    live: LiveStatistics


async def observe(shared: Context) -> list[Observed]:
    """All cameras. Half a millisecond each: theirs off the event loop, the hub's on it, where its numbers belong."""
    cameras = list(shared.engine.cameras.values())
    live = [shared.hub.statistics(camera.name) for camera in cameras]
    theirs = await run_in_threadpool(lambda: [(camera.statistics(), camera.health()) for camera in cameras])
    return [Observed(c, *both, hub) for c, both, hub in zip(cameras, theirs, live, strict=True)]


async def _context(request: Request) -> Context:
    context: Context = request.app.state.pinhole
    return context


Shared = Annotated[Context, Depends(_context)]
