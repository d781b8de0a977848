"""``/api/v1/ops`` and ``/api/v1/sources``: what there is to choose from, with JSON Schemas."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from kernels.registry import all_ops
from pipeline.sources import all_sources, catalogue
from service.problems import Json
from service.routes import readable

router = APIRouter(tags=["catalogue"])


@readable(router, "/api/v1/ops", summary="Every operation with the JSON Schema of its parameters")
async def ops() -> Response:
    return Json({"ops": op_catalogue()})


@readable(
    router, "/api/v1/sources", summary="Every source with the JSON Schema of its settings, and the devices there are"
)
async def sources() -> Response:
    return Json({"sources": await run_in_threadpool(_sources)})


def _sources() -> list[dict[str, Any]]:
    found = all_sources()
    return [{**one, "devices": found[one["scheme"]].devices()} for one in catalogue()]


def op_catalogue() -> list[dict[str, Any]]:
    """What ops there are, as JSON; ``x-unit`` and ``x-step`` in a schema say how a control should look.

    ``depths``: the bits of a value that an op takes.
    """
    return [
        {
            "name": name, "kind": op.kind.value, "depths": [8, 16] if op.takes_16_bit else [8],
            "summary": op.summary, "schema": op.Params.model_json_schema(),
        }
        for name, op in all_ops().items()
    ]  # fmt: skip
