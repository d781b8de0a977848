"""``/metrics``: Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from service.context import Shared, observe
from service.metrics import CONTENT_TYPE, Snapshot, render_metrics
from service.routes import readable

router = APIRouter(tags=["state"])


@readable(router, "/metrics", summary="Counters, gauges and histograms in the Prometheus text format")
async def metrics(shared: Shared) -> Response:
    cameras = tuple((seen.statistics, seen.live) for seen in await observe(shared))
    text = await run_in_threadpool(render_metrics, Snapshot(shared.engine.device, cameras))
    return Response(text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
