"""``/api/v1/cameras/{camera}/controls``: what a camera itself can be told (exposure, focus, …), while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from kernels.errors import InputError
from pipeline.camera import Camera, CameraState
from pipeline.sources.v4l2 import V4l2
from pipeline.v4l2.controls import Control, read_controls, set_controls
from pipeline.v4l2.device import RequestError
from service.context import Shared
from service.inputs import read_object
from service.problems import Json, Problem
from service.routes import readable

router = APIRouter(prefix="/api/v1/cameras/{camera}/controls", tags=["cameras"])

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["controls"],
                    "additionalProperties": False,
                    "properties": {
                        "controls": {
                            "type": "object",
                            "minProperties": 1,
                            "additionalProperties": {"type": ["integer", "boolean", "string"]},
                        }
                    },
                },
                "examples": {"0": {"value": {"controls": {"brightness": 140, "auto_exposure": "Manual Mode"}}}},
            }
        },
    }
}


@readable(router, "", summary="A V4L2 camera's controls: ranges, menus, values now")
async def get_controls(camera: str, shared: Shared) -> Response:
    device = _device(shared.engine.get(camera))
    return _answer(device, await _asked(lambda: read_controls(device, V4l2.system), device))


@router.put(
    "", response_model=None, openapi_extra=_BODY,
    summary="Set some controls by name; all are checked before the first is set",
)  # fmt: skip
async def put_controls(camera: str, request: Request, shared: Shared) -> Response:
    found = shared.engine.get(camera)
    body = await read_object(request, {"controls": "{NAME: VALUE, …}"}, required=("controls",))
    values = body["controls"]
    if not isinstance(values, dict) or not values:
        raise InputError("controls", "is not an object with values in it", "{NAME: VALUE, …}")
    device = _device(found)
    return _answer(device, await _asked(lambda: set_controls(device, values, V4l2.system), device))


def _device(camera: Camera) -> str:
    """The node that the camera has open now.

    Raises:
        Problem: 409 where there is none, 503 while it is away.
    """
    if not camera.config.uri.lower().startswith("v4l2:"):
        detail = f"camera {camera.name} has no controls: they are V4L2's, and its source is another"
        raise Problem(409, detail, type="urn:pinhole:no-controls")
    source = camera.statistics().source
    if source is None or camera.state is not CameraState.RUNNING:
        raise _away(f"camera {camera.name} is {camera.state.value}: {camera.cause or 'no frame came yet'}")
    return str(source.details["device"])


async def _asked(ask: Callable[[], list[Control]], device: str) -> list[Control]:
    try:
        return await run_in_threadpool(ask)
    except (OSError, RequestError) as error:
        raise _away(f"{device} does not answer: {error}") from None


def _away(detail: str) -> Problem:
    return Problem(503, detail, type="urn:pinhole:camera-away", headers={"Retry-After": "2"})


def _answer(device: str, controls: list[Control]) -> Response:
    shown: dict[str, Any] = {"device": device, "controls": [control.to_json() for control in controls]}
    return Json(shown)
