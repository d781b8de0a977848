"""The configuration as it holds: flags over environment over file over defaults, and where each value came from."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from kernels.chain import Chain, make_chain, parse_chain
from kernels.device import MEMORY_STRATEGIES
from kernels.errors import InputError, UnknownNameError
from kernels.registry import use_ops_folder
from pipeline.camera import CameraConfig
from pipeline.sources import redact
from service.config_environment import read_environment
from service.config_file import read_file
from service.config_schema import (
    CAMERAS,
    SECTIONS,
    CameraSettings,
    Configuration,
    Layer,
    Place,
    closest,
    dotted,
    keys_under,
)
from service.settings import TOKEN_VARIABLE, find_token

DEFAULT = "default"
CONFIG_VARIABLE = "PINHOLE_CONFIG"


@dataclass(frozen=True, slots=True)
class Effective:
    """What holds: the settings, the cameras, and each key's value and origin, as given."""

    settings: Configuration
    cameras: tuple[CameraConfig, ...]
    layer: Layer

    @property
    def default_cameras(self) -> bool:
        """True if nobody named a camera, so that those run that Pinhole brings along."""
        return any(place[0] == CAMERAS and value.origin == DEFAULT for place, value in self.layer.items())


def load(
    flags: Layer,
    default_cameras: Callable[[], Layer],
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Effective:
    """Everything together, checked. ``default_cameras`` hold where nobody names a camera's URI.

    From here on the operations of ``ops_dir`` are known, which chains may name.

    Raises:
        InputError: names the first value that is wrong by where it stands, its whole path and what is allowed.
        PluginError: the file of an operation is broken.
    """
    named = file if file is not None else environment.get(CONFIG_VARIABLE) or None
    layers = [read_file(Path(named))] if named is not None else []
    layers += [read_environment(environment), flags]
    merged: Layer = {}
    for layer in layers:
        merged.update(layer)
    for layer in layers:
        _check_overridden({place: value for place, value in layer.items() if merged[place] is not value})
    if (CAMERAS,) not in merged and not any(place[0] == CAMERAS and place[-1] == "uri" for place in merged):
        merged = {**default_cameras(), **merged}
    names = _camera_names(merged)
    nested = _nested(merged)
    try:
        settings = Configuration.model_validate({**nested, CAMERAS: {name: nested[CAMERAS][name] for name in names}})
    except ValidationError as error:
        raise _input_error(error, merged) from None
    if settings.memory is not None and settings.memory not in MEMORY_STRATEGIES:
        near = closest(settings.memory, MEMORY_STRATEGIES)
        reason = f"unknown strategy {settings.memory[:60]!r}" + (f" (did you mean {near!r}?)" if near else "")
        raise InputError(where(("memory",), merged), reason, ", ".join(MEMORY_STRATEGIES))
    token = _token(settings, merged, environment)
    settings = settings.model_copy(update={"token": token})
    try:
        use_ops_folder(settings.ops_dir)
    except InputError as error:
        raise InputError(where(("ops_dir",), merged), error.reason, error.allowed) from None
    assert settings.cameras is not None
    cameras = tuple(camera_config(name, camera, merged) for name, camera in settings.cameras.items())
    return Effective(settings, cameras, merged)


def _check_overridden(layer: Layer) -> None:
    """Raise InputError for a value that is wrong, though another goes before it: it would surprise some day."""
    nested = _nested(layer)
    for camera in nested[CAMERAS].values():
        if isinstance(camera, dict):
            camera.setdefault("uri", "testcard://")
    try:
        Configuration.model_validate(nested)
    except ValidationError as error:
        raise _input_error(error, layer) from None


def _camera_names(layer: Layer) -> list[str]:
    """The cameras in the order in which they were first named.

    Raises:
        InputError: one of them has no URI.
    """
    places = [place for place in layer if len(place) == 3]
    names = list(dict.fromkeys(place[1] for place in places))
    with_uri = {place[1] for place in places if place[2] == "uri"}
    for place in places:
        if place[1] not in with_uri:
            origin = layer[place].origin
            if origin.startswith("--"):
                raise UnknownNameError(origin, "camera", place[1], with_uri)
            reason = f"no uri is given for the camera {place[1]!r}"
            near = closest(place[1], with_uri)
            hint = f" (did you mean the camera {near!r}?)" if near else ""
            raise InputError(f"{origin}: {dotted(place[:2])}.uri", reason + hint, "scheme://…")
    return names


def _nested(layer: Layer) -> dict[str, Any]:
    nested: dict[str, Any] = {CAMERAS: {}}
    for place, value in layer.items():
        if place == (CAMERAS,):
            continue
        inner = nested
        for part in place[:-1]:
            inner = inner.setdefault(part, {})
        inner[place[-1]] = value.value
    return nested


def where(place: Place, layer: Layer) -> str:
    """How to name a key in an error: by the file's line and its whole path, by its variable, or by its flag."""
    value = next((layer[place[:n]] for n in range(len(place), 0, -1) if place[:n] in layer), None)
    if value is None or value.origin == DEFAULT:
        return dotted(place)
    origin = value.origin
    # A variable or a flag names its key already.
    return origin if origin.startswith(("--", "PINHOLE_")) else f"{origin}: {dotted(place)}"


def _input_error(error: ValidationError, layer: Layer) -> InputError:
    first = error.errors()[0]
    parts = [f"[{part}]" if isinstance(part, int) else str(part) for part in first["loc"]]
    depth = 3 if parts[0] == CAMERAS else 2 if (parts[0],) in SECTIONS else 1
    place = tuple(parts[:depth])
    shown = "" if place[-1] in ("uri", "token") else f"{textwrap.shorten(repr(first['input']), 60)}: "
    message = first["msg"].removeprefix("Value error, ")
    return InputError(where(place, layer), f"{shown}{message}", _allowed(place))


def _allowed(place: Place) -> str:
    """What a key takes, for people, from the schema."""
    if place[-1] == "chain":
        return '"gaussian_blur(ksize=5) | sobel", or a list of operations'
    model: type[BaseModel] = Configuration
    if len(place) == 3:
        model = CameraSettings
    elif len(place) == 2:
        model = type(Configuration.model_fields[place[0]].get_default())
    schema = model.model_json_schema()["properties"].get(place[-1], {})
    if "enum" in schema:
        return ", ".join(str(item) for item in schema["enum"] if item is not None)
    text = str(schema.get("type", next((s["type"] for s in schema.get("anyOf", []) if s.get("type") != "null"), "")))
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    return f"{text}, {low:g} to {schema['maximum']:g}" if low is not None and "maximum" in schema else text


def _token(settings: Configuration, layer: Layer, environment: Mapping[str, str]) -> SecretStr | None:
    file = settings.token_file
    given = layer.get(("token_file",))
    by_file = given is not None and not given.origin.startswith(("--", "PINHOLE_"))
    if by_file and environment.get(TOKEN_VARIABLE, "").strip():
        file = None  # the environment goes before the configuration file
    return find_token(file, environment, insecure=settings.insecure)


def camera_config(name: str, camera: CameraSettings, layer: Layer) -> CameraConfig:
    """The pipeline's form of one camera.

    Raises:
        InputError: its name, chain or another value is not acceptable.
    """
    chain = read_chain(camera.chain, where((CAMERAS, name, "chain"), layer))
    try:
        return CameraConfig(name, camera.uri, chain, camera.slots, camera.wait, camera.stale_after_s)
    except InputError as error:
        raise located(error, name, layer) from None


def located(error: InputError, camera: str, layer: Layer) -> InputError:
    """The same error, about a camera's key, with where that key was given."""
    key = next((key for key in keys_under((CAMERAS, camera)) if error.field.startswith(key)), "uri")
    place = where((CAMERAS, camera, key), layer)
    rest = error.field.removeprefix(key)  # "?fps" of "uri?fps"
    if place.startswith("--"):
        place, rest = f"{place}: ", error.field
    elif error.field == "name":
        place, rest = where((CAMERAS, camera, "uri"), layer).removesuffix(".uri"), ""
    return InputError(place + rest, error.reason, error.allowed)


def read_chain(given: str | list[str | dict[str, Any]], field: str) -> Chain:
    """A chain from its text, or from a list of texts and ``{op, params}``.

    Raises:
        InputError: ``field`` with the path in it, and what is allowed.
    """
    if isinstance(given, str):
        return parse_chain(given, field=field)
    items: list[dict[str, Any]] = []
    for index, item in enumerate(given):
        if isinstance(item, str):
            items += parse_chain(item, field=f"{field}[{index}]").to_json()
        else:
            items.append(item)
    return make_chain(items, field=field)


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
            "stale_after_s": camera.stale_after_s,
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
