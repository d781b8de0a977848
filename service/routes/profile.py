"""``/api/v1/profile``: start and stop the CUDA profiler, bounded."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from kernels.errors import DeviceUnavailableError, InputError
from service.context import Shared
from service.inputs import read_object
from service.problems import Json, Problem
from service.profile import LONGEST_S, ProfileRunningError, retry_after

router = APIRouter(tags=["state"])

SHORTEST_S, DEFAULT_S = 0.1, 5.0

_SCHEMA = {
    "type": "object",
    "required": ["action"],
    "additionalProperties": False,
    "properties": {
        "action": {"enum": ["start", "stop"]},
        "seconds": {"type": "number", "minimum": SHORTEST_S, "maximum": LONGEST_S, "default": DEFAULT_S},
    },
}
_EXAMPLES = ({"action": "start", "seconds": 5}, {"action": "stop"})
_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": _SCHEMA, "examples": {str(i): {"value": e} for i, e in enumerate(_EXAMPLES)}}
    },
}


@router.post(
    "/api/v1/profile", response_model=None, openapi_extra={"requestBody": _BODY},
    summary="Start the CUDA profiler, which stops by itself, or stop it; one at a time",
)  # fmt: skip
async def profile(request: Request, shared: Shared) -> Response:
    allowed_s = f"{SHORTEST_S:g} to {LONGEST_S:g} s"
    body = await read_object(request, {"action": '"start" or "stop"', "seconds": allowed_s}, required=("action",))
    action, seconds = body["action"], body.get("seconds", DEFAULT_S)
    if action not in ("start", "stop"):
        raise InputError("action", f"{str(action)[:60]!r} is not an action", "start, stop")
    if action == "stop":
        if "seconds" in body:
            raise InputError("seconds", "means nothing with stop", "none")
        return Json({"running": False, "stopped": await shared.profiler.stop()})
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not SHORTEST_S <= seconds <= LONGEST_S:
        raise InputError("seconds", f"{str(seconds)[:60]!r} is not how long a profile may take", allowed_s)
    try:
        named = await shared.profiler.start(seconds)
    except ProfileRunningError as error:
        headers = {"Retry-After": retry_after(error)}
        raise Problem(409, str(error), type="urn:pinhole:profile-running", headers=headers) from None
    except DeviceUnavailableError as error:
        detail = f"{error}; GET /api/v1/cameras/{{camera}}/trace shows where a frame's time goes without one"
        raise Problem(501, detail, type="urn:pinhole:no-gpu") from None
    return Json({"running": True, "seconds": seconds, "nvtx": named}, 202)
