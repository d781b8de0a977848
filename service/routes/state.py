"""``/api/v1/state``: what runs, on which device, how."""

from __future__ import annotations

import os
import time

from fastapi import APIRouter
from starlette.responses import Response

from pipeline.encoders import where_encoded
from service.context import Shared, observe
from service.describe import milliseconds, rounded
from service.problems import Json
from service.routes import readable
from service.version import version

router = APIRouter(tags=["state"])


@readable(router, "/api/v1/state", summary="What runs, on which device, and why on that one")
async def state(shared: Shared) -> Response:
    engine, settings = shared.engine, shared.settings
    cameras = {}
    for seen in await observe(shared):
        statistics, health, live = seen.statistics, seen.health, seen.live
        cameras[statistics.name] = {
            "state": statistics.state.value,
            "cause": statistics.cause,
            "ready": health.ready,
            "reasons": list(health.reasons),
            "uri": statistics.uri,
            "fps": rounded(statistics.fps),
            "age_ms": milliseconds(statistics.age_ns),
            "chain_version": statistics.chain_version,
            "viewers": sum(count for kind, count in live.viewers.items() if kind != "snapshot"),
        }
    ledger = engine.device.ledger
    return Json(
        {
            "version": version(),
            "pid": os.getpid(),
            "uptime_s": round((time.monotonic_ns() - shared.started_ns) / 1e9, 3),
            "device": {
                **engine.device.describe(),
                "reason": shared.memory_reason,
                "jpeg": where_encoded("jpg", engine.device),
            },
            "held_bytes": {kind: ledger.held(kind) for kind in ("pinned", "managed", "host", "device")},
            "slots_bytes_limit": engine.device.max_host_bytes,
            "token_required": settings.token is not None,
            "webrtc": shared.sessions.absence is None,
            "limits": settings.limits.model_dump(),
            "cameras": cameras,
        }
    )
