"""``/cameras/{camera}/snapshot`` and ``…/stream``, and the short forms that other cameras' users know."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from kernels.errors import InputError
from kernels.image import MAX_SIDE_PX
from pipeline.encoders import all_encoders
from pipeline.encoders.base import DEFAULT_QUALITY
from pipeline.scaling import MIN_WIDTH_PX
from pipeline.state import CameraState
from service.context import Context, Shared
from service.inputs import QueryModel, query_parameters, read_query
from service.mjpeg import MjpegResponse
from service.picture import START_GRACE_S, Picture, Variant, View, no_picture_reason
from service.problems import Problem
from service.routes import readable

router = APIRouter(tags=["live"])

WAIT_S = 2 * START_GRACE_S  # for a picture; a camera that has none says why before that


class LiveQuery(QueryModel):
    view: View = Field(default=View.RESULT, description="What the chain made, or what the camera wrote.")
    quality: int = Field(default=DEFAULT_QUALITY, ge=1, le=100, description="JPEG quality.")
    width: int | None = Field(
        default=None, ge=MIN_WIDTH_PX, le=MAX_SIDE_PX, description="Scale down to this many pixels; never up."
    )


class StreamQuery(LiveQuery):
    fps: float | None = Field(default=None, ge=0.1, le=1000, description="At most this many frames a second.")


class SnapshotQuery(LiveQuery):
    format: str = Field(
        default="jpg",
        description="npy with view=source is the packed native planes.",
        json_schema_extra={"enum": [encoder.format for encoder in all_encoders().values()]},
    )


@readable(
    router, "/cameras/{camera}/stream",
    summary="The live picture as Motion JPEG; each second again while no newer one comes, as once the source has ended",
    openapi_extra={"parameters": query_parameters(StreamQuery)},
)  # fmt: skip
async def stream(camera: str, request: Request, shared: Shared) -> Response:
    return stream_of(camera, read_query(StreamQuery, request), shared)


@readable(
    router, "/cameras/{camera}/snapshot", summary="The newest frame, with its age",
    openapi_extra={"parameters": query_parameters(SnapshotQuery)},
)  # fmt: skip
async def snapshot(camera: str, request: Request, shared: Shared) -> Response:
    return await snapshot_of(camera, read_query(SnapshotQuery, request), shared)


@readable(
    router, "/stream", summary="The first camera's stream", openapi_extra={"parameters": query_parameters(StreamQuery)}
)
async def first_stream(request: Request, shared: Shared) -> Response:
    return stream_of(first_camera(shared), read_query(StreamQuery, request, ignore=("action",)), shared)


@readable(
    router, "/snapshot", summary="The first camera's newest frame",
    openapi_extra={"parameters": query_parameters(SnapshotQuery)},
)  # fmt: skip
async def first_snapshot(request: Request, shared: Shared) -> Response:
    return await snapshot_of(first_camera(shared), read_query(SnapshotQuery, request, ignore=("action",)), shared)


def first_camera(shared: Context) -> str:
    """The name of the camera that was added first. Raises Problem where there is none."""
    for name in shared.engine.cameras:
        return name
    raise Problem(404, "there is no camera")


def stream_of(camera: str, query: StreamQuery, shared: Context) -> Response:
    """The stream that was asked for. Raises UnknownNameError."""
    shared.engine.get(camera)
    variant = Variant.make(camera, view=query.view, quality=query.quality, width=query.width)
    return MjpegResponse(shared.hub, variant, fps=query.fps, deadline_s=shared.settings.limits.send_deadline_s)


async def snapshot_of(camera: str, query: SnapshotQuery, shared: Context) -> Response:
    """The newest frame as the response; waits briefly for a first one.

    Raises:
        UnknownNameError, InputError
        Problem: 503, the camera has no picture now; says why.
    """
    found = shared.engine.get(camera)
    native = query.format == "npy" and query.view is View.SOURCE
    if native and query.width is not None:
        raise InputError("width", "native planes are not scaled", "none with format=npy and view=source")
    variant = Variant.make(camera, view=query.view, format=query.format, quality=query.quality, width=query.width)
    viewer = shared.hub.open(variant, "snapshot")
    try:
        picture = await viewer.next(WAIT_S)
        error = viewer.feed.error
    finally:
        viewer.release()
    if picture is None or picture.placeholder:
        if error:
            raise Problem(500, f"the frame cannot be encoded: {error}", type="urn:pinhole:not-encoded")
        reason = picture.placeholder if picture is not None else no_picture_reason(found.state, found.cause)
        raise Problem(
            503, f"camera {camera} has no picture: {reason}", type="urn:pinhole:no-picture",
            headers={"Retry-After": "1"}, camera=camera, state=found.state.value, cause=found.cause,
        )  # fmt: skip
    headers = dict(picture.headers())
    if query.format == "npy":
        headers["X-Pixel-Format"] = picture.pixel_format
        headers["Content-Disposition"] = f'inline; filename="{camera}-{picture.sequence}.npy"'
    if stale := stale_reason(picture, found.config.stale_after_s, found.state):
        headers["X-Pinhole-Stale"] = stale
    headers |= {"Cache-Control": "no-store", "Content-Type": picture.media_type}
    return Response(picture.data, headers=headers)


def stale_reason(picture: Picture, stale_after_s: float, state: CameraState) -> str:
    """Why the picture should not be taken for what is there now, or ""."""
    if state is CameraState.ENDED:
        return "ended"
    age_s = (time.monotonic_ns() - picture.captured_ns) / 1e9
    return f"older than {stale_after_s:g} s" if age_s > stale_after_s else ""
