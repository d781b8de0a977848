"""Removes credentials from URIs, and from other people's texts about them. Never raises; in doubt it hides more."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

MASK = "***"

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/{0,2}")
_AT = re.compile(r"@|%(?:25)*40")
_SECRET_WORDS = re.compile(
    r"pass|pwd|token|secret|key|auth|user|usr|login|name|cred|sig|session|pin|code(?!c)|jwt|bearer|streamid|account|"
    r"email|hash|hmac|nonce|ticket|access|sid$|^(?:p|pw|u|k)$",
    re.IGNORECASE,
)
# Of a setting with a harmless name: as long and mixed as keys and tokens are, and no size, rate or word.
_TOKEN_LIKE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9+/_.~=-]{16,}|[0-9]{16,}|[A-Za-z]{24,}")
_PLACE = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*://)(?:{re.escape('***')}@)?([^/?#\s@*]+)")
_SECRET_IN_PATH = re.compile(rf"(?:{_SECRET_WORDS.pattern})[^/]*?(?:=|:|%(?:25)*3[AaDd])", re.IGNORECASE)
_URL_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(?:/|%2[Ff])+)[^\s/@'\"<>]*@")
_ENDS = r"(?![A-Za-z0-9-]|[^\s/?#'\"<>]*@)"  # after a host: neither more of its name nor an @ that would make it a user
_NAMED_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
# A mask where one of ours may have come from: between the signs of a URI, which may be escaped.
_MASKED = re.compile(
    r"(?:^|[/?#&;=@:]|%(?:25)*(?:2F|3F|23|26|3B|3D|40|3A))\*\*\*(?:$|[/?#&;@]|%(?:25)*(?:2F|3F|23|26|3B|40))",
    re.IGNORECASE,
)
_MIN_PIECE_CHARS = 3
_READABLE = ":/@*=,!$'()[]~"  # may stand in a setting's value as it is


@dataclass(slots=True)
class _Secrets:
    """``anywhere``: hidden wherever it stands; ``whole``: where it is a word of its own; ``quoted``: between quotes.

    A secret of a letter or two is quoted alone: hidden in every word, it would be told by what is missing.
    """

    anywhere: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    quoted: set[str] = field(default_factory=set)

    def add(self, text: str, *, weak: bool = False) -> None:
        for form in _decodings(text):
            if form.strip("*"):
                short = len(form) < _MIN_PIECE_CHARS
                (self.quoted if short else self.whole if weak else self.anywhere).add(form)


def redact_uri(uri: str, harmless_keys: Collection[str], path_schemes: Collection[str] = ()) -> str:
    """``uri`` without userinfo, without the values of settings that may be credentials, without its fragment.

    A setting may be one by its name (:func:`is_secret_key`) or by its value, if it is not among ``harmless_keys``.
    Nothing else changes: with the masks filled in, it is the same URI again. Made for broken URIs too: an unescaped
    / ? # or @ in a password does not show a part of it. URIs of ``path_schemes`` have no userinfo, so that an @ in a
    file's name stays; their setting ``name`` may hold another URI (percent-encoded), which is masked in the same way.
    """
    return _take_apart(uri, harmless_keys, path_schemes, _Secrets())


def is_masked(uri: str) -> bool:
    """True if a credential's mask stands in ``uri``, as :func:`redact_uri` leaves it there."""
    return _MASKED.search(uri) is not None


def redact_text_about(text: str, uri: str, harmless_keys: Collection[str], path_schemes: Collection[str] = ()) -> str:
    """``text`` without any form of the secrets of ``uri``: as written, decoded, encoded once or more, escaped, base64.

    What the URI may show (itself, masked, and the address in it) stays as it is, whatever the secrets are: a camera's
    address must be readable with the password ``127`` too. Userinfo of any other URL in the text is hidden as well.
    """
    secrets = _Secrets()
    shown = _take_apart(uri, harmless_keys, path_schemes, secrets)
    for form in _decodings(uri):
        if form:
            text = text.replace(form, shown)
    safe = {shown} - {"", MASK}
    for scheme, place in _PLACE.findall(_unquoted(shown)):
        masked = f"{scheme}{MASK}@{place}"
        text = re.sub(rf"{re.escape(scheme)}[^\s'\"<>]*@{re.escape(place)}{_ENDS}", masked.replace("\\", r"\\\\"), text)
        safe |= {f"{scheme}{place}", masked}
    either = "|".join(map(re.escape, sorted(safe, key=len, reverse=True)))
    parts = re.split(rf"((?:{either}){_ENDS})", text) if safe else [text]
    parts[::2] = [_without_secrets(part, secrets) for part in parts[::2]]
    return "".join(parts)


def _without_secrets(text: str, secrets: _Secrets) -> str:
    for secret in sorted(secrets.anywhere, key=len, reverse=True):
        text = _hide(text, _any_form(secret))
    for secret in sorted(secrets.whole, key=len, reverse=True):
        text = _hide(text, rf"(?<![A-Za-z0-9]){_any_form(secret)}(?![A-Za-z0-9])")
    for secret in sorted(secrets.quoted, key=len, reverse=True):
        text = _hide(text, rf"(?<=['\"]){_any_form(secret)}(?=['\"])")
    return _URL_USERINFO.sub(rf"\g<1>{MASK}@", text)


def is_secret_key(key: str) -> bool:
    """True if a setting of that name may hold a credential."""
    return _SECRET_WORDS.search(_unquoted(key)) is not None


def _take_apart(uri: str, harmless_keys: Collection[str], path_schemes: Collection[str], secrets: _Secrets) -> str:
    match = _PREFIX.match(uri)
    prefix = match[0] if match and "/" in match[0] else ""
    rest = uri[len(prefix) :]
    if prefix.partition(":")[0].lower() not in path_schemes or not rest.startswith(("/", "?")):
        rest = _without_userinfo(rest, secrets)
    rest, has_fragment, fragment = rest.partition("#")
    location, has_query, query = rest.partition("?")
    segments = [_without_path_secret(segment, secrets) for segment in location.split("/")]
    settings = [
        (_named_uri(part, harmless_keys, secrets) if "@" not in query.replace(f"{MASK}@", "") else None)
        or _without_value(part, harmless_keys, secrets)
        for part in re.split("([&;])", query)
    ]
    if fragment:
        secrets.add(fragment)
    return prefix + "/".join(segments) + has_query + "".join(settings) + has_fragment + (MASK if fragment else "")


def _without_userinfo(rest: str, secrets: _Secrets) -> str:
    marks = list(_AT.finditer(rest))
    for mark in marks:  # which @ ends the userinfo is unsure where a password holds one
        _add_userinfo(rest[: mark.start()].lstrip("/"), secrets, sure=mark is marks[-1])
    if marks and marks[-1][0] != "@" and "=" in (query := rest[: marks[-1].start()].partition("?")[2]):
        # An escaped @ of a setting's value, or of a password with ?…= in it: what follows may belong to the secret.
        for part in re.split("[&;#]", query + rest[marks[-1].start() :]):
            _without_value(part, (), secrets)
        return MASK
    if marks:
        return f"{MASK}@{rest[marks[-1].end() :]}"
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    _, colon, port = authority.rpartition(":")
    if colon and not port.isdecimal() and not authority.startswith("["):  # user:password with its host forgotten
        _add_userinfo(authority, secrets, sure=True)
        return MASK + rest[len(authority) :]
    return rest


def _add_userinfo(userinfo: str, secrets: _Secrets, *, sure: bool) -> None:
    user, _, password = userinfo.partition(":")
    if ":" not in userinfo:
        user, password = "", userinfo if not _looks_like_place(userinfo) else ""
    secrets.add(user, weak=True)
    if not password:
        return
    secrets.add(password, weak=not sure and len(password) < _MIN_PIECE_CHARS)
    for decoded in _decodings(password):
        # What a library that takes the URI apart in another way would show of it.
        for piece in re.split("[/?#@:&]", decoded):
            secrets.add(piece, weak=len(piece) < _MIN_PIECE_CHARS)
        for name in _decodings(user):
            pair = f"{name}:{decoded}".encode("utf-8", "surrogatepass")
            secrets.add(base64.b64encode(pair).decode())
            secrets.add(base64.urlsafe_b64encode(pair).decode())


def _looks_like_place(text: str) -> bool:
    return "/" in text or "?" in text


def _without_path_secret(segment: str, secrets: _Secrets) -> str:
    if _SECRET_IN_PATH.search(segment) is None:
        return segment
    secrets.add(segment)
    for value in re.split(r"(?:=|:|%(?:25)*3[AaDd])", segment)[1:]:
        secrets.add(value, weak=True)
        for piece in re.split(r"[_&;,]", value):
            secrets.add(piece, weak=True)
    return MASK


def _named_uri(part: str, harmless_keys: Collection[str], secrets: _Secrets) -> str | None:
    key, _, value = part.partition("=")
    uri = unquote(value)
    if key != "name" or key not in harmless_keys or not _NAMED_URI.fullmatch(uri):
        return None
    shown = _take_apart(uri, (), (), secrets)
    return part if shown == uri else f"{key}={quote(shown, safe=_READABLE)}"


def _without_value(part: str, harmless_keys: Collection[str], secrets: _Secrets) -> str:
    if part in ("", "&", ";"):
        return part
    key, equals, value = part.partition("=")
    if key in harmless_keys and not is_secret_key(key):
        return part
    if not equals:
        secrets.add(key, weak=not is_secret_key(key))
        return MASK
    if not is_secret_key(key) and "@" not in _unquoted(value) and not _TOKEN_LIKE.fullmatch(_unquoted(value)):
        return part
    secrets.add(value, weak=not is_secret_key(key))
    return f"{key}={MASK}"


def _decodings(text: str) -> list[str]:
    """``text``, and what percent-decoding makes of it once, twice, … until nothing changes.

    Each of them is somebody's secret: the password ``50%b1`` is written ``50%25b1``, and decodes further by accident.
    """
    stages = [text]
    while len(stages) < 9 and (decoded := unquote(stages[-1])) != stages[-1]:
        stages.append(decoded)
    return stages


def _unquoted(text: str) -> str:
    """Percent-decoded until nothing changes."""
    return _decodings(text)[-1]


def _hide(text: str, pattern: str) -> str:
    """Replace until none is left: a mask and its neighbours may match again, but with a character less each time."""
    expression = re.compile(pattern, re.IGNORECASE)
    while True:
        hidden = expression.sub(MASK, text)
        if hidden == text:
            return text
        text = hidden


def _any_form(secret: str) -> str:
    """A pattern in which each character may be itself, percent-encoded (once or more), or escaped in a common way."""
    return "".join(f"(?:{'|'.join(_forms(char))})" for char in secret)


def _forms(char: str) -> Iterator[str]:
    encoded = char.encode("utf-8", "surrogatepass")
    yield "".join(f"%(?:25)*{byte:02x}" for byte in encoded)
    escaped = {repr(char)[1:-1], ascii(char)[1:-1], json.dumps(char)[1:-1], html.escape(char), html.escape(char, False)}
    escaped |= {"&#39;", "\\'"} if char == "'" else {"\\\\\\\\"} if char == "\\" else {"+"} if char == " " else set()
    for form in sorted(escaped - {char}, key=len, reverse=True):
        yield re.escape(form)
    yield re.escape(char)
