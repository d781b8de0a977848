"""``/metrics``: Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.context import Context, Shared
from service.metrics import CONTENT_TYPE, Snapshot, render_metrics
from service.routes import readable

router = APIRouter(tags=["state"])


@readable(router, "/metrics", summary="Counters, gauges and histograms in the Prometheus text format")
async def metrics(shared: Shared) -> Response:
    text = await run_in_threadpool(render_metrics, snapshot(shared))
    return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


def snapshot(shared: Context) -> Snapshot:
    """What is counted now; on the event loop, as the hub's numbers are its."""
    cameras = shared.engine.cameras.items()
    return Snapshot(
        shared.engine.device,
        tuple((camera.statistics(), shared.hub.statistics(name)) for name, camera in cameras),
    )
