"""``/cameras/{camera}/snapshot``, ``…/stream`` and ``…/ws``, and the short forms that other cameras' users know."""

from __future__ import annotations

from fastapi import APIRouter, Request, WebSocket
from starlette.responses import Response

from kernels.errors import InputError
from service.context import Context, Shared
from service.feed import stale_reason
from service.inputs import query_parameters, read_query
from service.mjpeg import MjpegResponse
from service.picture import START_GRACE_S, View, no_picture_reason
from service.problems import Json, Problem
from service.queries import SnapshotQuery, StreamQuery
from service.routes import readable
from service.ustreamer import MjpegQuery, state_json
from service.websocket import LiveSocket

router = APIRouter(tags=["live"])

WAIT_S = 2 * START_GRACE_S  # for a picture; a camera that has none says why before that


@readable(
    router, "/cameras/{camera}/stream",
    summary="The live picture as Motion JPEG; each second again while no newer one comes, as once the source has ended",
    openapi_extra={"parameters": query_parameters(MjpegQuery)},
)  # fmt: skip
async def stream(camera: str, request: Request, shared: Shared) -> Response:
    return stream_of(camera, read_query(MjpegQuery, request), shared)


@readable(
    router, "/cameras/{camera}/snapshot", summary="The newest frame, with its age",
    openapi_extra={"parameters": query_parameters(SnapshotQuery)},
)  # fmt: skip
async def snapshot(camera: str, request: Request, shared: Shared) -> Response:
    return await snapshot_of(camera, read_query(SnapshotQuery, request), shared)


@router.websocket("/cameras/{camera}/ws")
async def live_socket(camera: str, socket: WebSocket) -> None:
    shared: Context = socket.app.state.pinhole
    try:
        query = read_query(StreamQuery, socket)
    except Problem as problem:
        await problem.response()(socket.scope, socket.receive, socket.send)
        return
    deadline_s = shared.settings.limits.send_deadline_s
    await LiveSocket(shared.hub, camera, query, deadline_s=deadline_s)(socket.scope, socket.receive, socket.send)


@readable(
    router, "/stream", summary="The first camera's stream", openapi_extra={"parameters": query_parameters(MjpegQuery)}
)
async def first_stream(request: Request, shared: Shared) -> Response:
    return stream_of(first_camera(shared), read_query(MjpegQuery, request, ignore=("action",)), shared)


@readable(
    router, "/snapshot", summary="The first camera's newest frame",
    openapi_extra={"parameters": query_parameters(SnapshotQuery)},
)  # fmt: skip
async def first_snapshot(request: Request, shared: Shared) -> Response:
    return await snapshot_of(first_camera(shared), read_query(SnapshotQuery, request, ignore=("action",)), shared)


@readable(router, "/state", summary="The first camera as ustreamer's /state shows one")
async def ustreamer_state(shared: Shared) -> Response:
    name = first_camera(shared)
    return Json(state_json(shared.engine.get(name).statistics(), shared.hub.statistics(name)))


def first_camera(shared: Context) -> str:
    """The name of the camera that was added first. Raises Problem where there is none."""
    for name in shared.engine.cameras:
        return name
    raise Problem(404, "there is no camera")


def stream_of(camera: str, query: MjpegQuery, shared: Context) -> Response:
    """The stream that was asked for. Raises UnknownNameError."""
    shared.engine.get(camera)
    return MjpegResponse(
        shared.hub, query.variant(camera), fps=query.fps, framing=query.framing,
        deadline_s=shared.settings.limits.send_deadline_s,
        asked=query.model_dump(include={"extra_headers", "advance_headers", "dual_final_frames", "key"}),
    )  # fmt: skip


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
    viewer = shared.hub.open(query.variant(camera, query.format), "snapshot")
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
