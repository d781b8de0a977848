"""Who may: one rule on every route and WebSocket, the two health routes apart. Pure ASGI.

A client shows the token in one of four ways, as each can do some: ``Authorization: Bearer`` (scripts),
``Authorization: Basic`` with the token as the password and any name (browsers ask for it; ``http://any:TOKEN@host/…``
in OpenCV, ffmpeg, VLC, curl), ``?token=`` (a picture in somebody's page), and a cookie that the page sets when it is
opened with ``?token=``. The cookie is not the token but derived from it, as all ports of one host share their cookies;
it is not sent along with what other sites make a browser do.

Whoever the browser would let act for its user without knowing is kept out: a state change or WebSocket must come from
our own origin, and without a token the name that the client asked for must be ours (DNS rebinding).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import Problem
from service.settings import Settings, is_loopback

OPEN_PATHS = frozenset({"/health/live", "/health/ready"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
COOKIE_AGE_S = 30 * 24 * 3600

Headers = dict[str, str]


class AccessRule:
    """See the module. Sets ``scope["state"]["authorized"]``: False only on an open path without the token."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._token = None if settings.token is None else Token(settings.token.get_secret_value())
        self._origins = {origin_of(origin) for origin in settings.allow_origins}
        name = socket.gethostname().lower()
        own = {"localhost", name, f"{name}.local", settings.host.lower().strip("[]")}
        self._hosts = own | {host.lower() for host in settings.allow_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        in_query = take_token(scope)
        problem = self._foreign(scope, headers)
        authorized = self._token is None or self._token.shown_by(headers, in_query)
        if problem is None and not authorized and scope["path"] not in OPEN_PATHS:
            problem = _unauthorized()
        if problem is not None:
            await _answer(problem, scope, receive, send)
            return
        scope.setdefault("state", {})["authorized"] = authorized
        page = scope["type"] == "http" and scope["path"] == "/" and not scope["query_string"]
        if self._token is not None and in_query is not None and authorized and page and scope["method"] == "GET":
            await _redirect_with_cookie(self._token, scope, receive, send)
            return
        embeddable = in_query is not None or bool(self._origins)
        await self._app(scope, receive, _with_headers(send, embeddable))

    def _foreign(self, scope: Scope, headers: Headers) -> Problem | None:
        """Why a browser's request is not one of our own page's or user's, or None."""
        host = headers.get("host", "")
        if self._token is None and host and not self._known_host(host):
            detail = f"{host[:100]!r} is not a name of this service; use its address, or start it with --allow-host"
            return Problem(403, detail, type="urn:pinhole:unknown-host")
        if scope["type"] == "http" and scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if origin is None:
            cross = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        else:
            place = origin_of(origin).partition("://")[2]
            cross = (not place or place != host.lower()) and origin_of(origin) not in self._origins
        if not cross:
            return None
        detail = f"{(origin or 'another site')[:100]!r} may not act here; start the service with --allow-origin"
        return Problem(403, detail, type="urn:pinhole:foreign-origin")

    def _known_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts or name.endswith(".localhost") or is_loopback(name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # an address cannot be pointed elsewhere by somebody's name server


class Token:
    """The secret, compared in constant time."""

    def __init__(self, text: str) -> None:
        self._digest = hashlib.sha256(text.encode()).digest()
        key = hmac.new(text.encode(), b"pinhole cookie 1", hashlib.sha256).hexdigest()
        self.cookie_name, self.cookie_value = f"pinhole_{key[:8]}", key[8:]

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(text.encode("utf-8", "replace")).digest(), self._digest)

    def shown_by(self, headers: Headers, in_query: str | None) -> bool:
        """True if any of the four ways shows the token."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        candidates = [in_query] if in_query is not None else []
        if scheme.lower() == "bearer":
            candidates.append(value.strip())
        elif scheme.lower() == "basic":
            candidates += _password(value)
        cookie = _cookie(headers.get("cookie", ""), self.cookie_name)
        shown = [self.matches(candidate) for candidate in candidates]
        return any([*shown, hmac.compare_digest(cookie.encode(), self.cookie_value.encode())])


def take_token(scope: Scope) -> str | None:
    """The query's ``token``, taken out of the scope, so that nothing behind this can log or echo it."""
    query: bytes = scope["query_string"]
    if b"token" not in query and b"%" not in query:
        return None
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="utf-8", errors="replace")
    tokens = [value for key, value in pairs if key == "token"]
    if not tokens:
        return None
    scope["query_string"] = urlencode([pair for pair in pairs if pair[0] != "token"]).encode("ascii")
    return tokens[-1]


def origin_of(text: str) -> str:
    """An origin in the one form in which they are compared."""
    return text.strip().lower().rstrip("/")


def _password(encoded: str) -> Iterable[str]:
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return ()
    return (text.partition(":")[2],)


def _cookie(header: str, name: str) -> str:
    # By hand: http.cookies gives up all that stands behind the first odd pair, and all ports of a host share cookies.
    for pair in header.split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value.strip('"')
    return ""


def _unauthorized() -> Problem:
    return Problem(
        401,
        "show the token: Authorization: Bearer TOKEN, or HTTP Basic with it as the password, or ?token=TOKEN",
        type="urn:pinhole:unauthorized",
        headers={"WWW-Authenticate": 'Basic realm="pinhole", charset="UTF-8"'},
    )


async def _answer(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await problem.response()(scope, receive, _with_headers(send, False))
        return
    await receive()  # websocket.connect
    await send({"type": "websocket.close", "code": 1008, "reason": str(problem)[:120]})  # before accept: HTTP 403


async def _redirect_with_cookie(token: Token, scope: Scope, receive: Receive, send: Send) -> None:
    """Open the page without the token in its address, history and referrer."""
    cookie = f"{token.cookie_name}={token.cookie_value}; Path=/; Max-Age={COOKIE_AGE_S}; HttpOnly; SameSite=Lax"
    fields = [
        (b"location", b"/"),
        (b"set-cookie", cookie.encode()),
        (b"cache-control", b"no-store"),
        (b"content-length", b"0"),
    ]
    await _with_headers(send, False)({"type": "http.response.start", "status": 303, "headers": fields})
    await _with_headers(send, False)({"type": "http.response.body", "body": b""})


def _with_headers(send: Send, embeddable: bool) -> Send:
    """Adds what every answer carries: no sniffing, no referrer, and who may show it in a page."""
    policy = b"cross-origin" if embeddable else b"same-site"

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            fields = [
                (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"no-referrer"),
                (b"cross-origin-resource-policy", policy),
            ]
            message = {**message, "headers": [*message.get("headers", []), *fields]}
        await send(message)

    return wrapped
