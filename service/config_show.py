"""The configuration that holds, as YAML that loads again and as JSON, and the schema of its file. No secrets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from pipeline.sources import redact
from service.config import DEFAULT, Effective
from service.config_schema import CAMERAS, SECTIONS, Configuration, Place, dotted
from service.settings import TOKEN_VARIABLE


@dataclass(frozen=True, slots=True)
class Shown:
    """One line of ``pinhole config show``: never a secret."""

    place: Place
    value: Any
    origin: str


def shown(effective: Effective) -> list[Shown]:
    """Every key with its effective value and where it came from; URIs without credentials, the token as stars."""
    settings, layer = effective.settings, effective.layer
    lines = []

    def add(place: Place, value: Any) -> None:
        given = layer.get(place)
        lines.append(Shown(place, value, given.origin if given is not None else DEFAULT))

    for key in SECTIONS[()]:
        if key == CAMERAS:
            continue
        value = getattr(settings, key)
        if isinstance(value, BaseModel):
            for name in type(value).model_fields:
                add((key, name), getattr(value, name))
        else:
            add((key,), list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value)
    for camera in effective.cameras:
        values = {
            "uri": redact(camera.uri), "chain": str(camera.chain), "slots": camera.slots, "wait": camera.wait,
            "stale_after_s": camera.stale_after_s, "memory": camera.memory,
        }  # fmt: skip
        for key, value in values.items():
            add((CAMERAS, camera.name, key), value)
    return lines


def as_yaml(effective: Effective) -> str:
    """The effective configuration as a file that can be loaded again, each value's origin as a comment."""
    lines = []
    if effective.settings.token is not None:
        given = effective.layer.get(("token_file",))
        lines.append(f"# A token is set, by {given.origin if given is not None else TOKEN_VARIABLE}.")
    open_sections: Place = ()
    for line in shown(effective):
        above = line.place[:-1]
        for depth, part in enumerate(above):
            if above[: depth + 1] != open_sections[: depth + 1]:
                lines.append(f"{'  ' * depth}{_key(part)}:")
        open_sections = above
        text = json.dumps(line.value, ensure_ascii=False)  # JSON's values are YAML's
        lines.append(f"{'  ' * len(above)}{line.place[-1]}: {text}  # {line.origin}")
    if not effective.cameras:
        lines.append(f"{CAMERAS}: {{}}")
    return "\n".join(lines)


def _key(text: str) -> str:
    """A mapping's key as YAML, quoted where it would be no text without."""
    plain = isinstance(yaml.safe_load(text), str)
    return text if plain else json.dumps(text)


def as_json(effective: Effective) -> dict[str, Any]:
    """``{"settings": [{"key", "value", "from"}], "token": where it is from, or null}``."""
    given = effective.layer.get(("token_file",))
    origin = None
    if effective.settings.token is not None:
        origin = given.origin if given is not None else TOKEN_VARIABLE
    lines: Iterable[Shown] = shown(effective)
    return {
        "settings": [{"key": dotted(line.place), "value": line.value, "from": line.origin} for line in lines],
        "token": origin,
    }


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file."""
    schema = Configuration.model_json_schema()
    schema["properties"].pop("token")
    schema["title"] = "Configuration of Pinhole"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
