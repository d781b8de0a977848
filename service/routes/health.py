"""``/health/live`` and ``/health/ready``: for supervisors and load balancers; open, but details need the token."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from kernels.errors import PinholeError
from service.context import Shared
from service.problems import Json, Problem
from service.routes import readable

router = APIRouter(tags=["health"])


@readable(router, "/health/live", summary="Does the service itself work: its loop and its device, not the cameras?")
async def live(request: Request, shared: Shared) -> Response:
    try:
        await run_in_threadpool(shared.engine.device.check)
    except PinholeError as error:
        return _failing(request, "not alive", [{"device": str(error)}])
    return Json({"status": "alive"})


@readable(router, "/health/ready", summary="Does every camera that should have one have a fresh processed frame?")
async def ready(request: Request, shared: Shared) -> Response:
    reasons = [
        {"camera": name, "reason": reason}
        for name, health in shared.engine.health().items()
        if not health.ready
        for reason in health.reasons
    ]
    if reasons:
        return _failing(request, "not ready", reasons)
    return Json({"status": "ready"})


def _failing(request: Request, status: str, reasons: list[dict[str, str]]) -> Response:
    detail = "; ".join(": ".join(reason.values()) for reason in reasons)
    if not request.scope.get("state", {}).get("authorized", True):
        return Problem(503, status, type="urn:pinhole:unhealthy").response()
    return Problem(503, detail, type="urn:pinhole:unhealthy", title=status, reasons=reasons).response()
