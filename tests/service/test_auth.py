"""One rule on every route: who may, and whom a browser would act for without knowing."""

from __future__ import annotations

import asyncio
import base64
import http.client
import importlib.util
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from kernels.device import HostDevice
from kernels.errors import InputError
from pipeline.engine import Engine
from service.app import create_app
from service.auth import Token, _cookie, take_token
from service.settings import Settings, is_loopback
from tests.helpers.inprocess import Served, serving
from tests.helpers.server import SMALL_CARD
from tests.leaks import no_leaks
from tests.service.test_api import READABLE, assert_problem

pytestmark = pytest.mark.leaks_allowed("the shared service makes its worker threads when needed; checked at its end")

TOKEN = "s3cret/+%&token"
OTHERS = ["/cameras/one/stream", "/stream", "/?action=stream", "/nope", "/api/v1/nope", "/cameras/nope/snapshot"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    with no_leaks(), serving({"one": SMALL_CARD}, settings=Settings(token=SecretStr(TOKEN))) as served:
        yield served


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(token: str = TOKEN, user: str = "anybody") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()}


def routes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    for route in app.routes:
        for method in sorted(getattr(route, "methods", None) or ()):
            yield method, getattr(route, "path", "").format(camera="one", index=0, name="page.js", session="x")


def test_b79_every_route_that_there_is_wants_the_token(guarded: Served) -> None:
    engine = Engine(HostDevice())
    checked = 0
    for method, path in routes_of(create_app(engine, Settings())):
        if path.startswith("/health/"):
            continue
        reply = guarded.request(method, path)
        assert reply.status == 401, (method, path)
        assert reply.headers["www-authenticate"].startswith("Basic realm=")
        checked += 1
    engine.stop()
    assert checked > 20


@pytest.mark.parametrize("path", [*(p for p in READABLE if not p.startswith("/health/")), *OTHERS])
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(""), basic("wrong"), {"Authorization": "Basic !!"}])
def test_b79_nothing_is_shown_without_the_right_token(guarded: Served, path: str, headers: dict[str, str]) -> None:
    assert_problem(guarded.get(path, headers=headers), 401)


def test_b79_both_health_routes_are_open_without_details(guarded: Served) -> None:
    assert guarded.get("/health/live").json() == {"status": "alive"}
    assert guarded.get("/health/ready").json() == {"status": "ready"}


def test_b79_an_unready_service_gives_reasons_only_with_the_token() -> None:
    settings = Settings(token=SecretStr(TOKEN))
    with serving({"gone": "file:///nowhere/x.mp4"}, settings=settings, ready=False) as served:
        served.until(lambda: served.engine.get("gone").state.value == "reconnecting")
        plain = assert_problem(served.get("/health/ready"), 503)
        assert "gone" not in str(plain)
        full = assert_problem(served.get("/health/ready", headers=bearer()), 503)
        assert full["reasons"][0]["camera"] == "gone"
        assert "reconnecting" in full["reasons"][0]["reason"]


@pytest.mark.parametrize("headers", [bearer(), basic(), basic(user=""), {"authorization": f"bearer  {TOKEN} "}])
def test_the_token_opens_everything_by_header(guarded: Served, headers: dict[str, str]) -> None:
    for path in READABLE:
        assert guarded.get(path, headers=headers).status == 200, path
    chain = {"ops": [{"op": "sobel"}]}
    assert guarded.request("PUT", "/api/v1/cameras/one/chain", chain, headers=headers).status == 200


def test_the_token_opens_pictures_by_query(guarded: Served) -> None:
    value = "s3cret/%2B%25%26token"
    for query in (f"token={value}", f"width=160&token={value}&quality=5", f"%74oken={value}"):
        reply = guarded.get("/cameras/one/snapshot?" + query)
        assert reply.status == 200
        assert reply.headers["cross-origin-resource-policy"] == "cross-origin", "somebody's page may embed it"
    assert_problem(guarded.get("/cameras/one/snapshot?token="), 401)
    assert_problem(guarded.get("/cameras/one/snapshot?Token=s3cret/%2B%25%26token"), 401)


def test_the_page_swaps_the_token_in_its_address_for_a_cookie(guarded: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=10)
    connection.request("GET", "/?token=s3cret/%2B%25%26token")
    answer = connection.getresponse()
    answer.read()
    cookie = answer.headers["set-cookie"]
    connection.close()
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert TOKEN not in cookie
    pair = cookie.partition(";")[0]
    assert guarded.get("/", headers={"Cookie": f"other=1; {pair}"}).status == 200
    assert guarded.get("/stream", headers={"Cookie": pair + "0"}).status == 401


def test_state_changes_come_from_our_own_pages(guarded: Served) -> None:
    path = "/api/v1/cameras/one/chain"
    chain: dict[str, Any] = {"ops": []}
    own = f"http://127.0.0.1:{guarded.port}"
    assert guarded.request("PUT", path, chain, headers={**bearer(), "Origin": own}).status == 200
    subdomain = f"http://127.0.0.1.evil.test:{guarded.port}"
    for origin in ("http://evil.test", "null", own + "0", "http://127.0.0.1", subdomain, ""):
        reply = guarded.request("PUT", path, chain, headers={**bearer(), "Origin": origin})
        assert_problem(reply, 403)
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        reply = guarded.request("PUT", path, chain, headers={**bearer(), "Sec-Fetch-Site": site})
        assert reply.status == status, site
    assert guarded.get("/api/v1/state", headers={**bearer(), "Origin": "http://evil.test"}).status == 200
    assert "access-control-allow-origin" not in guarded.get("/api/v1/state", headers=bearer()).headers


def handshake(served: Served, **headers: str) -> int:
    """The status of a WebSocket handshake."""
    fields = {
        "Host": f"127.0.0.1:{served.port}", "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers,
    }  # fmt: skip
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        connection.sendall(f"GET /cameras/one/ws HTTP/1.1\r\n{lines}\r\n".encode())
        return int(connection.recv(4096).split()[1])


def test_b79_b81_a_websocket_follows_the_same_rule(guarded: Served, served: Served) -> None:
    assert handshake(guarded) in (401, 403)
    assert handshake(guarded, Authorization="Bearer wrong") in (401, 403)
    refused = (403,) if importlib.util.find_spec("websockets") else (403, 404)  # else the handshake is a plain GET
    assert handshake(served, Origin="http://evil.test") in refused
    assert handshake(served, Host="evil.test") == 403
    assert handshake(guarded, **bearer()) == 101
    assert handshake(guarded, **bearer(), Origin="http://evil.test") == 403, "the token is no leave for other pages"
    assert handshake(served, Origin=served.url) == 101


def messages_of(app: Any, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """What the application sends for one scope."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def go() -> None:
        await app(scope, receive, send)
        await app.state.pinhole.hub.stop()

    asyncio.run(go())
    return sent


@pytest.mark.parametrize("origin", [b"http://evil.test", b"null", b"http://127.0.0.1:9999"])
def test_b81_a_foreign_websocket_is_closed_before_it_is_accepted(origin: bytes) -> None:
    engine = Engine(HostDevice())
    app = create_app(engine, Settings())
    scope = {
        "type": "websocket", "path": "/cameras/one/ws", "raw_path": b"", "query_string": b"", "subprotocols": [],
        "headers": [(b"host", b"127.0.0.1:8080"), (b"origin", origin)],
    }  # fmt: skip
    assert [message["type"] for message in messages_of(app, scope)] == ["websocket.close"]
    engine.stop()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200), ("localhost", 200), ("LOCALHOST:9", 200), ("cam.localhost", 200), ("[::1]:80", 200),
        ("192.168.1.5:8080", 200), (socket.gethostname(), 200), ("evil.test", 403), ("127.0.0.1.evil.test", 403),
        ("localhost.evil.test", 403), ("evil.test:8080", 403), ("@", 403), ("[::1", 403),
    ],
)  # fmt: skip
def test_without_a_token_only_our_own_names_are_served(served: Served, host: str, status: int) -> None:
    for path in ("/api/v1/state", "/cameras/one/snapshot", "/health/live"):
        assert served.get(path, headers={"Host": host}).status == status, path


def test_names_and_origins_can_be_allowed() -> None:
    settings = Settings(allow_hosts=("Cam.Example",), allow_origins=("https://panel.example/",))
    with serving({"one": SMALL_CARD}, settings=settings) as served:
        assert served.get("/api/v1/state", headers={"Host": "cam.example:444"}).status == 200
        headers = {"Origin": "https://panel.example"}
        assert served.request("PUT", "/api/v1/cameras/one/chain", {"ops": []}, headers=headers).status == 200
        assert served.get("/snapshot").headers["cross-origin-resource-policy"] == "cross-origin"


def test_without_a_token_other_sites_cannot_show_the_picture(served: Served) -> None:
    assert served.get("/snapshot").headers["cross-origin-resource-policy"] == "same-site"


@pytest.mark.parametrize(
    ("query", "token", "left"),
    [
        (b"token=a", "a", b""), (b"a=1&token=b&c=2", "b", b"a=1&c=2"), (b"token=a&token=b", "b", b""),
        (b"a=1", None, b"a=1"),
        (b"", None, b""), (b"token", "", b""), (b"nottoken=1", None, b"nottoken=1"), (b"a=%20", None, b"a=%20"),
        (b"token=%zz%ff", "%zz\ufffd", b""),
    ],
)  # fmt: skip
def test_the_token_is_taken_out_of_the_query(query: bytes, token: str | None, left: bytes) -> None:
    scope: dict[str, Any] = {"query_string": query}
    assert take_token(scope) == token
    assert scope["query_string"] == left


def test_a_token_matches_only_itself() -> None:
    token = Token("abc")
    assert token.matches("abc")
    for other in ("", "ab", "abcd", "ABC", "abc ", "äbc", "\udcff"):
        assert not token.matches(other)
    assert Token("abd").cookie_value != token.cookie_value


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "LocalHost.", "::1", "[::1]"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    Settings(host=host).check()


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.1.1", "example.com", "localhost.example.com", "127.0.0.1.x"]
)
def test_b79_other_addresses_are_refused_without_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever names the network knows.
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [])
    with pytest.raises(InputError, match="--insecure"):
        Settings(host=host).check()
    Settings(host=host, token=SecretStr("x")).check()
    Settings(host=host, insecure=True).check()


@pytest.mark.parametrize("before", ['prefs={"a":"b,c"}', "a b=c", "x", "naïve=1", 'q="'])
def test_other_programs_cookies_do_not_hide_ours(before: str) -> None:
    assert _cookie(f"{before}; pinhole_1=secret; other=2", "pinhole_1") == "secret"
    assert _cookie(f"{before}; other=2", "pinhole_1") == ""
