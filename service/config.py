"""The configuration as it holds: flags over environment over file over defaults, and where each value came from."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError

from kernels.chain import Chain, make_chain, parse_chain
from kernels.device import MEMORY_STRATEGIES
from kernels.errors import InputError, UnknownNameError
from kernels.registry import use_ops_folder
from pipeline.camera import CameraConfig
from service.config_environment import read_environment
from service.config_file import read_file
from service.config_problems import Problems
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
        InputError: names each value that is wrong by where it stands, its whole path and what is allowed;
            ConfigurationError where it is more than one.
        PluginError: the file of an operation is broken.
    """
    problems = Problems()
    named = file if file is not None else environment.get(CONFIG_VARIABLE) or None
    layers = [read_file(Path(named), problems)] if named is not None else []
    layers += [read_environment(environment, problems), flags]
    merged: Layer = {}
    for layer in layers:
        merged.update(layer)
    for layer in layers:
        _check_overridden({place: value for place, value in layer.items() if merged[place] is not value}, problems)
    if (CAMERAS,) not in merged and not any(place[0] == CAMERAS and place[-1] == "uri" for place in merged):
        merged = {**default_cameras(), **merged}
    names = _camera_names(merged, problems)
    nested = _nested(merged)
    nested[CAMERAS] = {name: nested[CAMERAS][name] for name in names}
    try:
        settings = Configuration.model_validate(nested)
    except ValidationError as error:
        wrong = _input_errors(error, merged)
        problems.found += wrong.values()
        _check_chains(nested, merged, {place[1] for place in wrong if place[0] == CAMERAS}, problems)
        problems.raise_any()
        raise AssertionError("a validation error names what is wrong") from error
    with problems.collected():
        _check_memory(settings, merged)
    with problems.collected():
        settings = settings.model_copy(update={"token": _token(settings, merged, environment)})
    cameras = []
    with problems.collected():
        _take_ops_folder(settings.ops_dir, merged)
        for name, camera in (settings.cameras or {}).items():
            with problems.collected():
                cameras.append(camera_config(name, camera, merged))
    problems.raise_any()
    return Effective(settings, tuple(cameras), merged)


def _check_overridden(layer: Layer, problems: Problems) -> None:
    """Find values that are wrong, though others go before them: they would surprise some day."""
    nested = _nested(layer)
    for camera in nested[CAMERAS].values():
        if isinstance(camera, dict):
            camera.setdefault("uri", "testcard://")
    try:
        Configuration.model_validate(nested)
    except ValidationError as error:
        problems.found += _input_errors(error, layer).values()


def _check_memory(settings: Configuration, layer: Layer) -> None:
    if settings.memory is not None and settings.memory not in MEMORY_STRATEGIES:
        near = closest(settings.memory, MEMORY_STRATEGIES)
        reason = f"unknown strategy {settings.memory[:60]!r}" + (f" (did you mean {near!r}?)" if near else "")
        raise InputError(where(("memory",), layer), reason, ", ".join(MEMORY_STRATEGIES))


def _take_ops_folder(folder: Path | None, layer: Layer) -> None:
    try:
        use_ops_folder(folder)
    except InputError as error:
        raise InputError(where(("ops_dir",), layer), error.reason, error.allowed) from None


def _check_chains(nested: dict[str, Any], layer: Layer, wrong: set[str], problems: Problems) -> None:
    """Find what is wrong with the chains where other values are, but for the ``wrong`` cameras."""
    folder = nested.get("ops_dir")
    with problems.collected():
        _take_ops_folder(Path(folder) if isinstance(folder, (str, Path)) else None, layer)
        for name, camera in nested[CAMERAS].items():
            if name not in wrong and "chain" in camera:
                with problems.collected():
                    read_chain(camera["chain"], where((CAMERAS, name, "chain"), layer))


def _camera_names(layer: Layer, problems: Problems) -> list[str]:
    """The cameras that have a URI, in the order in which they were first named; others are found to be wrong.

    Those with a key that is none are not told of their URI: that key may have been meant for it.
    """
    places = [place for place in layer if len(place) == 3]
    names = list(dict.fromkeys(place[1] for place in places))
    with_uri = {place[1] for place in places if place[2] == "uri"}
    for name in names:
        if name in with_uri or problems.mention(f"{CAMERAS}.{name}"):
            continue
        place = next(place for place in places if place[1] == name)
        origin = layer[place].origin
        if origin.startswith("--"):
            problems.found.append(UnknownNameError(origin, "camera", name, with_uri))
            continue
        near = closest(name, with_uri)
        hint = f" (did you mean the camera {near!r}?)" if near else ""
        reason = f"no uri is given for the camera {name!r}{hint}"
        problems.found.append(InputError(f"{origin}: {dotted(place[:2])}.uri", reason, "scheme://…"))
    return [name for name in names if name in with_uri]


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


def _input_errors(error: ValidationError, layer: Layer) -> dict[Place, InputError]:
    """What is wrong with each value, by its place."""
    found: dict[Place, InputError] = {}
    for item in error.errors():
        parts = [f"[{part}]" if isinstance(part, int) else str(part) for part in item["loc"]]
        depth = 3 if parts[0] == CAMERAS else 2 if (parts[0],) in SECTIONS else 1
        place = tuple(parts[:depth])
        shown = "" if place[-1] in ("uri", "token") else f"{textwrap.shorten(repr(item['input']), 60)}: "
        message = item["msg"].removeprefix("Value error, ")
        found.setdefault(place, InputError(where(place, layer), f"{shown}{message}", _allowed(place)))
    return found


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
        return CameraConfig(name, camera.uri, chain, camera.slots, camera.wait, camera.stale_after_s, camera.memory)
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
