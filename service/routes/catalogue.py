"""``/api/v1/ops`` and ``/api/v1/sources``: what there is to choose from, with JSON Schemas."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from kernels.registry import all_ops
from pipeline.sources import catalogue
from service.problems import Json
from service.routes import readable

router = APIRouter(tags=["catalogue"])


@readable(router, "/api/v1/ops", summary="Every operation with the JSON Schema of its parameters")
async def ops() -> Response:
    return Json({"ops": op_catalogue()})


@readable(router, "/api/v1/sources", summary="Every source with the JSON Schema of its settings")
async def sources() -> Response:
    return Json({"sources": catalogue()})


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
