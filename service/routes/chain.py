"""``/api/v1/cameras/{camera}/chain``: what is done to each frame, changed while it runs."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from kernels.chain import Chain
from kernels.registry import all_ops
from service.context import Shared
from service.describe import chain_json
from service.inputs import read_object
from service.problems import Json
from service.routes import readable

router = APIRouter(prefix="/api/v1/cameras/{camera}/chain", tags=["chain"])


def _chain_schema() -> dict[str, Any]:
    op = [
        {
            "type": "object",
            "title": name,
            "description": op.summary,
            "required": ["op"],
            "additionalProperties": False,
            "properties": {"op": {"const": name}, "params": op.Params.model_json_schema()},
        }
        for name, op in all_ops().items()
    ]
    return {
        "type": "object",
        "required": ["ops"],
        "additionalProperties": False,
        "properties": {"ops": {"type": "array", "maxItems": 64, "items": {"oneOf": op}}},
    }


_PARAMS_SCHEMA = {
    "type": "object",
    "required": ["params"],
    "additionalProperties": False,
    "properties": {"params": {"type": "object"}},
}


def _body(schema: dict[str, Any], example: str) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "example": json.loads(example)}}
    return {"requestBody": {"required": True, "content": content}}


_CHAIN_EXAMPLE = '{"ops": [{"op": "gaussian_blur", "params": {"ksize": 5}}, {"op": "sobel"}]}'
_PARAMS_EXAMPLE = '{"params": {"ksize": 9}}'


@readable(router, "", summary="The camera's chain and its version")
async def get_chain(camera: str, shared: Shared) -> Response:
    return Json(chain_json(shared.engine.get(camera).chain))


@router.put(
    "",
    response_model=None,
    summary="Replace the chain as a whole",
    openapi_extra=_body(_chain_schema(), _CHAIN_EXAMPLE),
)
async def put_chain(camera: str, request: Request, shared: Shared) -> Response:
    found = shared.engine.get(camera)
    body = await read_object(request, {"ops": '[{"op": NAME, "params": {…}}, …]'}, required=("ops",))
    return _changed(await run_in_threadpool(found.set_chain, body["ops"]))


@router.patch(
    "/{index}", response_model=None, openapi_extra=_body(_PARAMS_SCHEMA, _PARAMS_EXAMPLE),
    summary="Change some parameters of one operation; the others keep their values",
)  # fmt: skip
async def patch_step(camera: str, index: int, request: Request, shared: Shared) -> Response:
    found = shared.engine.get(camera)
    body = await read_object(request, {"params": "{NAME: VALUE, …}"}, required=("params",))
    if not isinstance(body["params"], dict):
        from kernels.errors import InputError

        raise InputError("params", f"{type(body['params']).__name__} is not an object", "{NAME: VALUE, …}")
    return _changed(await run_in_threadpool(found.set_params, index, body["params"]))


def _changed(chain: Chain) -> Response:
    """Frames that carry at least this version in ``X-Chain-Version`` were made by it or a later one."""
    return Json(chain_json(chain))
