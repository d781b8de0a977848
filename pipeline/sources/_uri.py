"""Takes a source's URI apart, strictly: whatever is not meant for sure is an error that says what to write."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from kernels.errors import InputError

MAX_URI_CHARS = 4096

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class SourceUri:
    """The parts of ``scheme://authority/path?key=value&…``.

    ``scheme`` is in lower case; ``authority`` and ``path`` are as written; ``query`` is decoded, in order.
    """

    scheme: str
    authority: str
    path: str
    query: dict[str, str]

    def local_path(self) -> Path:
        """The decoded path; any file name is possible, through the file system's own encoding."""
        return Path(os.fsdecode(unquote_to_bytes(self.path)))


def parse_uri(uri: str, field: str = "uri") -> SourceUri:
    """The parts of a URI; never shows its values in an error.

    Raises:
        InputError: not ``scheme://…``, control characters, a fragment, a malformed, valueless or repeated setting.
    """
    if not isinstance(uri, str) or len(uri) > MAX_URI_CHARS:
        raise InputError(field, f"is not a text of up to {MAX_URI_CHARS} characters")
    if _CONTROL.search(uri) or any("\ud800" <= char <= "\udfff" for char in uri):
        raise InputError(field, "has a control character or a broken one in it", "write it as %XX")
    match = _SCHEME.match(uri)
    if match is None:
        raise InputError(
            field,
            "has no scheme",
            "SCHEME://…; a file is file:///path/to/it, a webcam opencv://0 or opencv:///dev/video0",
        )
    if "#" in uri:
        raise InputError(field, "has a # in it", "write %23 for a # that belongs to a name")
    location, _, query = uri[match.end() :].partition("?")
    authority, slash, path = location.partition("/")
    if _BAD_ESCAPE.search(location) or b"\0" in unquote_to_bytes(path):
        raise InputError(
            field, "has a malformed % escape or %00 in it", "%XX; write %25 for a % that belongs to a name"
        )
    return SourceUri(match[1].lower(), authority, slash + path, _parse_query(query, field))


def _parse_query(query: str, field: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        raw_key, equals, raw_value = part.partition("=")
        key, value = _decode(raw_key, field), _decode(raw_value, field)
        shown = f"{field}?{key[:60]}"
        if not key:
            raise InputError(field, "has a setting without a name", "?key=value&key=value")
        if not equals or not value:
            raise InputError(shown, "has no value", f"{key[:60]}=VALUE")
        if key in settings:
            raise InputError(shown, "is given more than once", "once")
        settings[key] = value
    return settings


def _decode(text: str, field: str) -> str:
    try:
        if _BAD_ESCAPE.search(text):
            raise ValueError("malformed % escape")
        decoded = unquote_to_bytes(text).decode()
    except ValueError:
        raise InputError(field, "has a malformed % escape in its settings", "%XX of UTF-8") from None
    if _CONTROL.search(decoded):
        raise InputError(field, "has a control character in its settings")
    return decoded
