"""``/api/v1/cameras/{camera}/chain``: what is done to each frame, changed while it runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from kernels.chain import MAX_OPS, Chain, parse_chain
from kernels.errors import InputError
from kernels.registry import all_ops
from service.context import Shared
from service.describe import chain_json
from service.inputs import read_object
from service.problems import Json
from service.routes import readable


def make_router() -> APIRouter:
    """The resource. Made with the application, not on import: its schema needs every op, and a broken one is an error.

    Raises:
        PluginError
    """
    router = APIRouter(prefix="/api/v1/cameras/{camera}/chain", tags=["chain"])
    readable(router, "", summary="The camera's chain and its version")(get_chain)
    router.put(
        "",
        response_model=None,
        summary="Replace the chain as a whole",
        openapi_extra=_body(_chain_schema(), CHAIN_EXAMPLES),
    )(put_chain)
    router.patch(
        "/{index}",
        response_model=None,
        summary="Change some parameters of one operation; the others keep their values",
        openapi_extra=_body(_PARAMS_SCHEMA, PARAMS_EXAMPLES),
    )(patch_step)
    return router


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
    ops = {"type": "array", "maxItems": MAX_OPS, "items": {"oneOf": op}}
    text = {"type": "string", "description": "The chain as on a command line; OP | OP, each NAME(PARAMETER=VALUE, …)."}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {"ops": ops, "chain": text},
        "oneOf": [{"required": ["ops"]}, {"required": ["chain"]}],
    }


_PARAMS_SCHEMA = {
    "type": "object",
    "required": ["params"],
    "additionalProperties": False,
    "properties": {"params": {"type": "object"}},
}


CHAIN_EXAMPLES = (
    {"ops": [{"op": "gaussian_blur", "params": {"ksize": 5}}, {"op": "sobel"}]},
    {"chain": "gaussian_blur(ksize=5) | sobel"},
)
PARAMS_EXAMPLES = ({"params": {"ksize": 9}},)
_CHAIN_KEYS = {"ops": '[{"op": NAME, "params": {…}}, …]', "chain": '"NAME(parameter=value, …) | …"'}


def _body(schema: dict[str, Any], examples: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    content = {
        "application/json": {"schema": schema, "examples": {str(i): {"value": e} for i, e in enumerate(examples)}}
    }
    return {"requestBody": {"required": True, "content": content}}


async def get_chain(camera: str, shared: Shared) -> Response:
    return Json(chain_json(shared.engine.get(camera).chain))


async def put_chain(camera: str, request: Request, shared: Shared) -> Response:
    found = shared.engine.get(camera)
    body = await read_object(request, _CHAIN_KEYS, required=())
    if len(body) != 1:
        reason = "is given beside ops: one of them says it all" if body else "neither ops nor chain is given"
        raise InputError(
            "chain" if body else "body", reason, " or ".join(f'{{"{k}": {v}}}' for k, v in _CHAIN_KEYS.items())
        )
    if "ops" in body:
        return _changed(await run_in_threadpool(found.set_chain, body["ops"]))
    text = body["chain"]
    if not isinstance(text, str):
        raise InputError("chain", f"{type(text).__name__} is not a text", _CHAIN_KEYS["chain"])
    return _changed(await run_in_threadpool(lambda: found.set_chain(parse_chain(text))))


async def patch_step(camera: str, index: int, request: Request, shared: Shared) -> Response:
    found = shared.engine.get(camera)
    body = await read_object(request, {"params": "{NAME: VALUE, …}"}, required=("params",))
    if not isinstance(body["params"], dict):
        raise InputError("params", f"{type(body['params']).__name__} is not an object", "{NAME: VALUE, …}")
    return _changed(await run_in_threadpool(found.set_params, index, body["params"]))


def _changed(chain: Chain) -> Response:
    """Frames that carry at least this version in ``X-Chain-Version`` were made by it or a later one."""
    return Json(chain_json(chain))
