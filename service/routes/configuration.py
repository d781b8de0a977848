"""``/api/v1/configuration``: the cameras as they are now, as a file for ``pinhole serve --config``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import yaml
from fastapi import APIRouter
from starlette.responses import Response

from pipeline.camera import Camera
from pipeline.sources import redact
from service.context import Shared
from service.routes import readable

router = APIRouter(tags=["state"])


@readable(router, "/api/v1/configuration", summary="The cameras and chains of now as YAML, without credentials")
async def configuration(shared: Shared) -> Response:
    text = configuration_yaml(shared.engine.cameras.values())
    return Response(text, headers={"Content-Type": "application/yaml", "Cache-Control": "no-store"})


def configuration_yaml(cameras: Iterable[Camera]) -> str:
    """A configuration file that makes the same cameras with the chains they have now.

    URIs are as they were given, but for credentials; a comment says which cameras need theirs back.
    """
    listed = list(cameras)
    hiding = [camera.name for camera in listed if redact(camera.config.uri) != camera.config.uri]
    note = f"# Put the credentials back into the uri of {', '.join(hiding)}.\n" if hiding else ""
    data = {"cameras": {camera.name: _camera(camera) for camera in listed}}
    return note + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=math.inf)


def _camera(camera: Camera) -> dict[str, Any]:
    config, chain = camera.config, camera.chain
    return {
        "uri": redact(config.uri),
        "chain": [str(step) for step in chain.steps],
        "slots": config.slots,
        "wait": config.wait,
        "stale_after_s": config.stale_after_s,
    }
