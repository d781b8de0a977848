"""Bad input of every kind: a clear answer, nothing half applied, and the service goes on."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kernels.registry import all_ops
from pipeline.encoders import all_encoders
from tests.helpers.inprocess import Served, serving
from tests.helpers.server import SMALL_CARD, serve
from tests.service.test_api import assert_problem

pytestmark = pytest.mark.leaks_allowed("the shared service makes its worker threads when needed; checked at its end")

CHAIN = "/api/v1/cameras/one/chain"


@pytest.fixture(autouse=True)
def _nothing_changed_and_it_goes_on(served: Served) -> Iterator[None]:
    before = served.get(CHAIN).json()
    yield
    assert served.get(CHAIN).json() == before
    assert served.get("/cameras/one/snapshot").status == 200
    assert served.get("/health/ready").status == 200


def put(served: Served, body: Any) -> Any:
    return served.request("PUT", CHAIN, body)


@pytest.mark.parametrize(
    "value", ["4", "0", "-1", "3.5", '"5"', "true", "1000000000", "null", "[5]", '{"a": 1}', "1e400", "NaN", "1e-400"]
)
def test_b113_an_impossible_window_is_refused_with_what_is_allowed(served: Served, value: str) -> None:
    body = b'{"ops": [{"op": "sobel"}, {"op": "gaussian_blur", "params": {"ksize": %s}}]}' % value.encode()
    problem = assert_problem(put(served, body), 415)  # without a content type it is not even read
    assert problem["errors"][0]["allowed"] == "application/json"
    reply = served.request("PUT", CHAIN, body, headers={"Content-Type": "application/json"})
    assert_problem(reply, 422, "ops[1].params.ksize", "1 to 31 in steps of 2")
    patch = b'{"params": {"ksize": %s}}' % value.encode()
    reply = served.request("PATCH", CHAIN + "/0", patch, headers={"Content-Type": "application/json"})
    assert_problem(reply, 422, "ops[0].params.ksize", "1 to 31 in steps of 2")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"NaN"', '"inf"', "1e308"])
@pytest.mark.parametrize("parameter", ["gain", "offset"])
def test_b115_what_is_not_finite_or_out_of_range_is_refused(served: Served, parameter: str, value: str) -> None:
    body = f'{{"ops": [{{"op": "gain_offset", "params": {{"{parameter}": {value}}}}}]}}'.encode()
    reply = served.request("PUT", CHAIN, body, headers={"Content-Type": "application/json"})
    assert_problem(reply, 422, f"ops[0].params.{parameter}", "number")


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/state", "/api/v1/cameras", "/openapi.json", "/api/v1/ops"])
def test_b115_no_answer_holds_what_json_has_no_word_for(served: Served, path: str) -> None:
    reply = served.get(path)
    assert reply.status == 200
    for word in (b"NaN", b"Infinity", b" inf"):
        assert word not in reply.body


@pytest.mark.parametrize(
    ("body", "field", "allowed"),
    [
        ({"ops": [{"op": "gausian_blur"}]}, "ops[0].op", "what `pinhole ops` lists"),
        ({"ops": [{"op": "posterise"}]}, "ops[0].op", ", ".join(all_ops())),
        ({"ops": [{"op": "sobel"}, {"op": ""}]}, "ops[1].op", "sobel"),
        ({"ops": [{"op": 5}]}, "ops[0].op", "sobel"),
        ({"ops": [{}]}, "ops[0].op", "sobel"),
        ({"ops": [{"op": "\ud800"}]}, "ops[0].op", "sobel"),
        ({"ops": [{"op": "x" * 10_000}]}, "ops[0].op", "sobel"),
        ({"ops": [{"op": "gamma", "params": {"gama": 2}}]}, "ops[0].params.gama", "gamma"),
        ({"ops": [{"op": "gamma", "parms": {}}]}, "ops[0].parms", "op, params"),
        ({"ops": [{"op": "gamma", "params": []}]}, "ops[0].params", "gamma"),
        ({"ops": [{"op": "gamma", "params": None}]}, "ops[0].params", "gamma"),
        ({"ops": [{"op": "gamma", "params": {"gamma": 0}}]}, "ops[0].params.gamma", "0.1 to 10"),
        ({"ops": "sobel"}, "ops", ""),
        ({"ops": None}, "ops", ""),
        ({"ops": {"op": "sobel"}}, "ops", ""),
        ({"ops": ["sobel"]}, "ops[0]", ""),
        ({"ops": [{"op": "sobel"}] * 65}, "ops", "0 to 64"),
        ({}, "body", "ops"),
        ({"op": []}, "op", "ops"),
        ({"ops": [], "version": 3}, "version", "ops"),
        ([], "body", ""),
        ("sobel", "body", ""),
        (None, "body", ""),
        (5, "body", ""),
    ],
    ids=lambda value: None if isinstance(value, str) else json.dumps(value)[:40],
)
def test_b117_a_chain_that_is_none_is_refused_with_the_known_names(
    served: Served, body: Any, field: str, allowed: str
) -> None:
    raw = json.dumps(body).encode()
    reply = served.request("PUT", CHAIN, raw, headers={"Content-Type": "application/json"})
    assert_problem(reply, 422, field, allowed)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"{'ops': []}", b"ops=[]", b"\xff\xfe", b'{"ops": []} x', b'{"ops": [], "ops": []}', b"[" * 60_000,
        b'{"ops": [' + b"9" * 5000 + b"]}", b"[" * 30_000 + b"]" * 30_000, b"\x00", b'"\\ud800"',
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
def test_what_is_not_json_is_refused(served: Served, body: bytes) -> None:
    for method, path in (("PUT", CHAIN), ("PATCH", CHAIN + "/0")):
        reply = served.request(method, path, body, headers={"Content-Type": "application/json; charset=utf-8"})
        assert_problem(reply, 422, "body")


@pytest.mark.parametrize("index", ["2", "-1", "99999999999999999999", "x", "1.5", "%00", "0x0"])
def test_an_index_that_is_none_is_refused(served: Served, index: str) -> None:
    reply = served.request("PATCH", f"{CHAIN}/{index}", {"params": {}})
    assert_problem(reply, 422, "index")


@pytest.mark.parametrize(
    "body", [{"params": 5}, {"params": None}, {}, {"params": {"sigma": -1}}, {"x": 1, "params": {}}]
)
def test_a_patch_that_is_none_is_refused(served: Served, body: Any) -> None:
    assert_problem(served.request("PATCH", CHAIN + "/0", body), 422)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_b81_a_state_change_that_a_form_could_send_is_refused(served: Served, content_type: str) -> None:
    reply = served.request("PUT", CHAIN, b'{"ops": []}', headers={"Content-Type": content_type})
    assert_problem(reply, 415, "Content-Type", "application/json")


def test_a_large_body_is_refused_declared_or_not(served: Served) -> None:
    big = b'{"ops": [' + b" " * 70_000 + b"]}"
    assert_problem(served.request("PUT", CHAIN, big, headers={"Content-Type": "application/json"}), 413)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    try:
        chunks = iter([b'{"ops": ['] + [b" " * 1000] * 100)
        connection.request("PUT", CHAIN, chunks, {"Content-Type": "application/json"}, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was answered and closed before all of it was sent
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("query", "field", "allowed"),
    [
        ("quality=0", "quality", "1 to 100"), ("quality=101", "quality", "1 to 100"),
        ("quality=-5", "quality", "1 to 100"),
        ("quality=high", "quality", "integer"), ("quality=", "quality", "integer"),
        ("quality=1e2", "quality", "integer"),
        ("quality=NaN", "quality", "integer"), ("quality=80.5", "quality", "integer"), ("quality=%00", "quality", ""),
        ("quality=" + "9" * 5000, "quality", "integer"), ("quality=5&quality=6", "quality", ""),
        ("width=0", "width", "160, 320, 480"), ("width=-1", "width", "160, 320, 480"),
        ("width=1000000000", "width", "160, 320, 480"),
        ("width=wide", "width", "160, 320, "), ("view=both", "view", "result, source"),
        ("view=", "view", "result, source"),
        ("qualty=5", "qualty", "quality"), ("height=5", "height", "width"),
    ],
)  # fmt: skip
def test_a_query_that_is_none_is_refused(served: Served, query: str, field: str, allowed: str) -> None:
    for path in ("/cameras/one/snapshot", "/cameras/one/stream", "/snapshot", "/stream", "/"):
        action = "action=stream&" if path == "/" else ""
        assert_problem(served.get(f"{path}?{action}{query}"), 422, field, allowed)


def test_nothing_and_a_wrong_index_are_said_in_plain_words(served: Served) -> None:
    two = "/api/v1/cameras/two/chain"
    problem = assert_problem(served.request("PATCH", f"{two}/one", {"params": {}}), 422, "index", "integer")
    assert "'one'" in problem["detail"]
    body = {"ops": [{"op": "gamma", "params": {"gamma": None}}]}
    problem = assert_problem(served.request("PUT", two, body), 422, "ops[0].params.gamma", "number")
    assert problem["errors"][0]["reason"].startswith("nothing: ")
    assert "None" not in problem["detail"]


@pytest.mark.parametrize(
    ("path", "field", "allowed"),
    [
        ("/cameras/one/stream?fps=0", "fps", "0.1 to 1000"), ("/cameras/one/stream?fps=nan", "fps", "number"),
        ("/cameras/one/stream?fps=inf", "fps", "number"), ("/cameras/one/stream?fps=-3", "fps", "0.1 to 1000"),
        ("/cameras/one/stream?fps=1e999", "fps", "number"), ("/cameras/one/stream?format=png", "format", "quality"),
        ("/cameras/one/snapshot?format=gif", "format", ", ".join(sorted(e.format for e in all_encoders().values()))),
        ("/cameras/one/snapshot?fps=5", "fps", "quality"),
        ("/cameras/one/snapshot?format=JPG", "format", "jpg"), ("/?x=1", "x", ""),
    ],
)  # fmt: skip
def test_a_query_of_another_resource_is_refused(served: Served, path: str, field: str, allowed: str) -> None:
    assert_problem(served.get(path), 422, field, allowed)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PUT /api/v1/cameras/one/chain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"PUT /api/v1/cameras/one/chain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET /cameras/one/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 20_000,
        b"GET /?" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=lambda data: repr(data[:30]),
)  # fmt: skip
def test_what_is_not_http_does_no_harm(served: Served, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            first = connection.recv(100)
        except (BrokenPipeError, ConnectionResetError):
            return
    assert first == b"" or first.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2"))


def test_a_head_without_end_is_refused_and_a_slow_one_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.connection.HEAD_DEADLINE_S", 0.3)
    with serving({"cam": SMALL_CARD}) as service:
        with socket.create_connection(("127.0.0.1", service.port), 5) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000)
            assert client.recv(100).startswith(b"HTTP/1.1 431 ")
        with socket.create_connection(("127.0.0.1", service.port), 5) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: loc")
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(100) == b""
        assert service.get("/health/live").status == 200


def test_an_upgrade_with_a_body_does_not_spoil_the_end() -> None:
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\nabc"
    with (
        serve("--camera", f"cam={SMALL_CARD}") as server,
        socket.create_connection(("127.0.0.1", server.port), 5) as client,
    ):
        client.sendall(b"GET /cameras/cam/stream HTTP/1.1\r\nHost: localhost\r\n" + upgrade)
        server.until(lambda: server.get("/health/live").status == 200)
        assert server.end()[0] == 0
