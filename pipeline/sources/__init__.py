"""Finds the sources: each module here whose name does not start with ``_`` and is not ``base`` is one source.

The file's name is the URI scheme (``testcard.py`` → ``testcard://``). A broken file stops the start-up with its name;
a source whose optional library is missing is listed, with the reason why it cannot be used.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernels.errors import InputError, UnknownNameError
from kernels.registry import broken, check_complete, load_class
from pipeline.sources._redact import MASK, is_masked, is_secret_key, redact_text_about, redact_uri
from pipeline.sources._uri import SourceUri, parse_uri
from pipeline.sources.base import Source, SourceConfig

SourceType = type[Source]


@cache
def all_sources() -> dict[str, SourceType]:
    """Every source by scheme, sorted, also those that are not available here; loaded on first call.

    Raises:
        PluginError: a file of this folder does not hold exactly one source named like the file.
    """
    found: dict[str, SourceType] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if not info.name.startswith("_") and info.name != "base":
            found[info.name] = load_source(f"{__name__}.{info.name}", info.name)
    return found


def load_source(module_name: str, scheme: str) -> SourceType:
    """The one source that a module defines.

    Raises:
        PluginError: the module fails to import, defines no source or several, or one of another scheme.
    """
    source: SourceType = load_class("source", module_name, Source)
    config = getattr(source, "Config", None)
    if getattr(source, "scheme", None) != scheme or not (isinstance(config, type) and issubclass(config, SourceConfig)):
        raise broken("source", source, f"must set scheme = {scheme!r} and Config to its settings model")
    if not isinstance(getattr(source, "example", None), str):
        raise broken("source", source, f"must set example to a URI, as {scheme}://…")
    check_complete("source", source, config)
    return source


def unavailable(scheme: str) -> str | None:
    """Why sources of that scheme cannot be used here, or None if they can. Raises UnknownNameError."""
    return _find(scheme, "scheme").unavailable()


def make_source(uri: str, field: str = "uri") -> Source:
    """The source that a URI describes; opens nothing and does not look whether anything is there (see ``check``).

    Raises:
        InputError: ``field`` or the setting under it (``camera.uri?fps``), and what is allowed.
    """
    parts = parse_uri(uri, field)
    if is_masked(uri):
        hidden = f"{MASK} stands where a credential was hidden: put the credentials back into the uri"
        raise InputError(field, hidden, f"the uri as it was; {MASK} that is meant is written %2A%2A%2A")
    source = _find(parts.scheme, field)
    _check_location(source, parts, field)
    config = _make_config(source, parts.query, field)
    if (reason := source.unavailable()) is not None:
        raise InputError(field, f"{parts.scheme}:// cannot be used here: {reason}")
    return source(uri, config)


def catalogue() -> list[dict[str, Any]]:
    """What sources there are, as JSON: scheme, summary, example, JSON Schema of the settings, and if it can be used."""
    return [
        {
            "scheme": scheme,
            "summary": (source.__doc__ or "").strip().split("\n")[0],
            "example": source.example,
            "location": source.location,
            "schema": source.Config.model_json_schema(),
            "available": (reason := source.unavailable()) is None,
            "reason": reason,
        }
        for scheme, source in all_sources().items()
    ]


def redact(uri: str) -> str:
    """The URI for logs, state and errors: no userinfo, no value of a setting that is not known to be harmless."""
    return redact_uri(uri, _harmless_keys(), _path_schemes())


def redact_text(text: str, uri: str) -> str:
    """Another library's text about ``uri`` without any form of that URI's credentials."""
    return redact_text_about(text, uri, _harmless_keys(), _path_schemes())


def clip_uri() -> str | None:
    """The clip that comes with Pinhole, looping (see media/ATTRIBUTION.md); None where files cannot be played."""
    if unavailable("file") is not None:
        return None
    return (Path(__file__).parent / "media" / "bigbuckbunny.mp4").as_uri() + "?loop=true"


@cache
def _harmless_keys() -> frozenset[str]:
    return frozenset(key for source in all_sources().values() for key in source.Config.model_fields)


@cache
def _path_schemes() -> frozenset[str]:
    return frozenset(scheme for scheme, source in all_sources().items() if source.location in ("path", "device"))


_BY_NAME = "opencv://?name=URL with % escapes, e.g. opencv://?name=rtsp%3A%2F%2Fhost%2Fstream"
_OPENED_BY_OPENCV = {
    **dict.fromkeys(("rtmp", "srt", "rtp"), _BY_NAME),
}


def _find(scheme: str, field: str) -> SourceType:
    known = all_sources()
    try:
        return known[scheme]
    except KeyError:
        if scheme in _OPENED_BY_OPENCV:
            reason = f"{scheme}:// has no source of its own yet; OpenCV may open it"
            raise InputError(field, reason, _OPENED_BY_OPENCV[scheme]) from None
        raise UnknownNameError(field, "scheme", scheme[:60], known) from None


def _check_location(source: SourceType, parts: SourceUri, field: str) -> None:
    form = f"{parts.scheme}://"
    if source.location == "nothing" and (parts.authority or parts.path):
        raise InputError(field, f"{form} takes nothing between :// and ?", source.example)
    if source.location == "path":
        if parts.authority.lower() not in ("", "localhost") or not parts.path.startswith("/"):
            raise InputError(field, "is not an absolute path on this machine", f"three slashes: {form}/path/to/it")
        if not parts.path.strip("/"):
            raise InputError(field, "names no file or folder", source.example)
    if source.location == "host" and not parts.authority:
        raise InputError(field, "names no host", source.example)
    if source.location == "device":
        _check_device(parts, field, "name" in source.Config.model_fields)


def _check_device(parts: SourceUri, field: str, has_name: bool) -> None:
    form = f"{parts.scheme}://"
    allowed = f"a number ({form}0), an absolute path ({form}/dev/video0)"
    allowed += f" or {form}?name=NAME with % escapes" if has_name else ""
    if parts.authority and not re.fullmatch("[0-9]{1,3}", parts.authority):
        raise InputError(field, f"what stands after {form} is not a camera's number", allowed)
    if (bool(parts.authority) + bool(parts.path) + (has_name and "name" in parts.query)) != 1 or parts.path == "/":
        raise InputError(field, "does not name one thing to open", allowed)


def _make_config(source: SourceType, values: Mapping[str, str], field: str) -> SourceConfig:
    properties = source.Config.model_json_schema()["properties"] if source.Config.model_fields else {}
    if source.Config.model_config.get("extra") == "allow":  # the others are a server's, and stay in its URL
        values = {key: value for key, value in values.items() if key in properties}
    for key, value in values.items():
        path = f"{field}?{key[:60]}"
        if key not in properties:
            if source.location == "device" and "://" in values.get("name", ""):
                reason = f"{source.scheme}:// has no such setting; an & of the URL after name= is written %26"
                raise InputError(path, reason, _BY_NAME)
            raise UnknownNameError(path, f"setting of {source.scheme}://", key[:60], properties)
        choices = [str(choice) for choice in properties[key].get("enum", ())]  # a query has texts only
        if choices and value not in choices:
            raise UnknownNameError(path, key, value[:60], choices)
    try:
        return source.Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        value = values.get(name, "")
        shown = "it" if is_secret_key(name) else repr(value[:60])
        message = first["msg"].removeprefix("Value error, ")
        path = f"{field}?{name}" if name else field
        raise InputError(path, f"{shown} {message}", _allowed(properties.get(name, {}))) from None


def _allowed(schema: Mapping[str, Any]) -> str:
    if "x-allowed" in schema:
        return str(schema["x-allowed"])
    kind = str(schema.get("type", "see the schema"))
    return f"{kind}, {schema['minimum']:g} to {schema['maximum']:g}" if {"minimum", "maximum"} <= set(schema) else kind
