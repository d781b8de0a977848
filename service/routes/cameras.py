"""``/api/v1/cameras`` and ``/api/v1/cameras/{camera}``, with the camera's latency."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from pipeline.camera import Camera
from service.context import Context, Shared
from service.describe import camera_json, latency_json
from service.inputs import QueryModel, query_parameters, read_query
from service.problems import Json
from service.routes import readable

router = APIRouter(prefix="/api/v1/cameras", tags=["cameras"])


class LatencyQuery(QueryModel):
    buckets: bool = Field(
        default=False,
        description="With each stage's histogram since the start; what was added between two answers is a window.",
    )


@readable(router, "", summary="All cameras, in the order in which they were added")
async def cameras(shared: Shared) -> Response:
    return Json({"cameras": [describe(shared, camera) for camera in shared.engine.cameras.values()]})


@readable(router, "/{camera}", summary="One camera: state, source, chain, counters, viewers")
async def camera(camera: str, shared: Shared) -> Response:
    return Json(describe(shared, shared.engine.get(camera)))


@readable(
    router, "/{camera}/latency", summary="Percentiles of each stage of a frame's life",
    openapi_extra={"parameters": query_parameters(LatencyQuery)},
)  # fmt: skip
async def latency(camera: str, request: Request, shared: Shared) -> Response:
    query = read_query(LatencyQuery, request)
    statistics = shared.engine.get(camera).statistics()
    return Json(latency_json(statistics, shared.hub.statistics(camera), buckets=query.buckets))


def describe(shared: Context, camera: Camera) -> dict[str, Any]:
    """The camera's snapshots as JSON."""
    return camera_json(camera.statistics(), camera.health(), camera.chain, shared.hub.statistics(camera.name))
