"""``/api/v1/cameras/{camera}/trace``: the last frames, stage by stage, for ui.perfetto.dev."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from pipeline.counters import MOST_TRACED
from service.context import Shared
from service.inputs import QueryModel, query_parameters, read_query
from service.routes import readable
from service.trace import render_trace

router = APIRouter(prefix="/api/v1/cameras", tags=["cameras"])


class TraceQuery(QueryModel):
    frames: int = Field(default=120, ge=1, le=MOST_TRACED, description="How many of the last processed frames.")


@readable(
    router, "/{camera}/trace", summary="The last frames stage by stage, as a trace for ui.perfetto.dev",
    openapi_extra={"parameters": query_parameters(TraceQuery)},
)  # fmt: skip
async def trace(camera: str, request: Request, shared: Shared) -> Response:
    query = read_query(TraceQuery, request)
    frames = shared.engine.get(camera).recent_frames(query.frames)
    made, delivered = shared.hub.recent(camera)  # where they belong: on the event loop
    body = await run_in_threadpool(render_trace, camera, frames, made, delivered)
    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{camera}.trace.json"'}
    return Response(body, headers=headers, media_type="application/json")
