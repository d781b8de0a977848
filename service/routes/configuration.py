"""``/api/v1/configuration``: what was set and the cameras as they are now, as a file for ``pinhole serve --config``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from fastapi import APIRouter
from starlette.responses import Response

from pipeline.camera import Camera
from pipeline.sources import redact
from service.config_schema import CAMERAS
from service.context import Shared
from service.routes import readable
from service.settings import TOKEN_VARIABLE, Settings, SettingsModel

router = APIRouter(tags=["state"])


@readable(router, "/api/v1/configuration", summary="Settings, cameras and chains of now as YAML, without credentials")
async def configuration(shared: Shared) -> Response:
    text = configuration_yaml(shared.settings, shared.engine.cameras.values())
    return Response(text, headers={"Content-Type": "application/yaml", "Cache-Control": "no-store"})


def configuration_yaml(settings: Settings, cameras: Iterable[Camera]) -> str:
    """A configuration file that makes the same service with the cameras and chains it has now.

    Settings are those that are not the default ones. URIs are as they were given, but for credentials; comments say
    which cameras need theirs back, and that a token is not in the file.
    """
    listed = list(cameras)
    notes = []
    if settings.token is not None and getattr(settings, "token_file", None) is None:
        notes.append(f"# The token is not in here: give it in {TOKEN_VARIABLE}, or in a file that token_file names.\n")
    if hiding := [camera.name for camera in listed if redact(camera.config.uri) != camera.config.uri]:
        notes.append(f"# Put the credentials back into the uri of {', '.join(hiding)}.\n")
    data = {**_changed(settings), CAMERAS: {camera.name: _camera(camera) for camera in listed}}
    return "".join(notes) + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=math.inf)


def _changed(model: SettingsModel) -> dict[str, Any]:
    """What is not as it is by default, as YAML has it; folders and files from the root on."""
    found: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if name in ("token", CAMERAS) or value == field.get_default():
            continue
        if isinstance(value, SettingsModel):
            value = _changed(value)
        elif isinstance(value, Path):
            value = str(value.absolute())
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def _camera(camera: Camera) -> dict[str, Any]:
    config, chain = camera.config, camera.chain
    memory = {} if config.memory is None else {"memory": config.memory}
    return {
        "uri": redact(config.uri),
        "chain": [str(step) for step in chain.steps],
        "slots": config.slots,
        "wait": config.wait,
        "stale_after_s": config.stale_after_s,
        **memory,
    }
