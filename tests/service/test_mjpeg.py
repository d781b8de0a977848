"""Motion JPEG beside its frames: what ustreamer's users send and read, who may read it elsewhere, odd methods."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from websockets.exceptions import InvalidStatus

from service.settings import Settings
from tests.helpers.inprocess import Served, serving
from tests.helpers.mjpeg import StreamClient
from tests.helpers.server import SMALL_CARD
from tests.helpers.websocket import received, watching

PANEL = "https://panel.example"

# Of pikvm/ustreamer 6, src/ustreamer/http/server.c.
EXTRA = {
    "online", "dropped", "width", "height", "client-fps", "grab-time", "encode-begin-time", "encode-end-time",
    "expose-begin-time", "expose-cmp-time", "expose-end-time", "send-time", "latency",
}  # fmt: skip


@pytest.mark.parametrize("yes", ["1", "true"])
def test_extra_headers_are_those_of_ustreamer(served: Served, yes: str) -> None:
    with StreamClient(served.port, f"/cameras/two/stream?extra_headers={yes}&key=mine") as client:
        parts = list(itertools.islice(client.parts(), 5))
    for part in parts:
        extra = {k.removeprefix("x-ustreamer-"): v for k, v in part.headers.items() if k.startswith("x-ustreamer-")}
        assert set(extra) == EXTRA
        assert extra["online"] == "true"
        assert (extra["width"], extra["height"]) == ("352", "128")
        assert re.fullmatch(r"\d+", extra["dropped"])
        assert re.fullmatch(r"\d+", extra["client-fps"])
        times = [float(extra[name]) for name in ("grab-time", "encode-begin-time", "encode-end-time", "send-time")]
        assert times == sorted(times)
        assert abs(times[-1] - time.monotonic()) < 10
        assert float(extra["latency"]) == pytest.approx(times[-1] - times[0], abs=1e-5)
        assert "x-frame-sequence" in part.headers


def test_advance_headers_come_before_their_picture_and_without_a_length(served: Served) -> None:
    """Read as ustreamer's clients do: up to the delimiter."""
    with StreamClient(served.port, "/cameras/two/stream?advance_headers=1&extra_headers=1") as client:
        _, headers = client.head()
        delimiter = b"\r\n--" + headers["content-type"].partition("boundary=")[2].encode() + b"\r\n"
        data = b"\r\n" + client._rest
        while data.count(delimiter) < 5 or not data.endswith(b"\r\n\r\n"):
            data += client.socket.recv(1 << 16)
    first, *parts, last = data.split(delimiter)
    assert first == b""
    assert len(parts) >= 4
    for part in parts:
        head, _, picture = part.partition(b"\r\n\r\n")
        assert re.fullmatch(rb"Content-Type: image/jpeg\r\nX-Timestamp: \d+\.\d{6}", head)
        assert (picture[:2], picture[-2:]) == (b"\xff\xd8", b"\xff\xd9")
    assert last.endswith(b"\r\n\r\n"), "the next one's headers are there, before its picture is"


def test_state_is_what_ustreamers_tools_read(served: Served) -> None:
    with StreamClient(served.port, "/stream?extra_headers=1&key=mine&dual_final_frames=1") as client:
        next(client.parts())
        state = served.get("/state").json()
    assert set(state) == {"ok", "result"}
    assert state["ok"] is True
    result = state["result"]
    assert set(result) == {"instance_id", "encoder", "source", "stream"}
    assert result["encoder"] == {"type": "CPU", "quality": 80}
    source = result["source"]
    assert source["resolution"] == {"width": 352, "height": 128}
    assert source["online"] is True
    assert source["desired_fps"] == 30
    assert all(type(source[name]) is int for name in ("desired_fps", "captured_fps"))
    assert result["stream"]["clients"] == 1
    [client_stat] = result["stream"]["clients_stat"].values()
    assert type(client_stat.pop("fps")) is int
    assert client_stat == {
        "extra_headers": True, "advance_headers": False, "dual_final_frames": True, "zero_data": False, "key": "mine"
    }  # fmt: skip


def test_what_is_not_online_says_so_to_ustreamers_tools() -> None:
    with serving({"gone": "opencv:///dev/video97"}, ready=False) as served:
        with StreamClient(served.port, "/stream?extra_headers=1") as client:
            part = next(client.parts())
        assert part.headers["x-ustreamer-online"] == "false"
        assert "x-pinhole-placeholder" in part.headers
        assert served.get("/state").json()["result"]["source"]["online"] is False


@pytest.mark.parametrize("path", ["/stream", "/cameras/one/stream", "/snapshot", "/?action=stream"])
def test_head_and_options_are_answered_and_take_no_place(served: Served, path: str) -> None:
    head = served.request("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-type"].startswith("image/jpeg" if "snapshot" in path else "multipart/x-mixed")
    assert "no-store" in head.headers["cache-control"]
    options = served.request("OPTIONS", path)
    assert (options.status, options.body) == (204, b"")
    assert options.headers["allow"] == "GET, HEAD, OPTIONS"
    assert served.request("POST", path, {}).status == 405
    assert served.metric("pinhole_viewers") == 0


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """A service that a page of another origin may use."""
    with serving({"cam": SMALL_CARD}, settings=Settings(allow_origins=(PANEL + "/",))) as served:
        yield served


def test_b81_pages_of_allowed_origins_read_pictures_and_their_headers(shared: Served) -> None:
    for path in ("/snapshot", "/api/v1/state"):
        reply = shared.get(path, headers={"Origin": PANEL})
        assert reply.headers["access-control-allow-origin"] == PANEL
        assert reply.headers["access-control-allow-credentials"] == "true"
        assert "origin" in reply.headers["vary"].lower()
        assert "X-Frame-Sequence" in reply.headers["access-control-expose-headers"]
    with StreamClient(shared.port, "/stream", headers=f"Origin: {PANEL}\r\n") as client:
        assert client.head()[1]["access-control-allow-origin"] == PANEL


@pytest.mark.parametrize("origin", ["https://evil.test", "http://panel.example", PANEL + ".evil.test", "null"])
def test_b81_other_pages_read_nothing(shared: Served, origin: str) -> None:
    reply = shared.get("/snapshot", headers={"Origin": origin})
    assert "access-control-allow-origin" not in reply.headers
    asked = {"Origin": origin, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}
    refused = shared.request("OPTIONS", "/api/v1/cameras/cam/chain", headers=asked)
    assert refused.status == 400
    assert "access-control-allow-origin" not in refused.headers


def test_b81_without_an_allow_list_no_page_of_another_origin_reads_anything(served: Served) -> None:
    reply = served.get("/snapshot", headers={"Origin": PANEL})
    assert not any(name.startswith("access-control-allow") for name in reply.headers)


def test_b79_b81_the_browsers_question_needs_no_token_and_what_follows_does() -> None:
    settings = Settings(token=SecretStr("s3cret-s3cret-s3cret"), allow_origins=(PANEL,))
    with serving({"cam": SMALL_CARD}, settings=settings, ready=False) as guarded:
        asked = {
            "Origin": PANEL,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "authorization",
        }
        preflight = guarded.request("OPTIONS", "/api/v1/cameras/cam/chain", headers=asked)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == PANEL
        assert "PUT" in preflight.headers["access-control-allow-methods"]
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        refused = guarded.get("/snapshot", headers={"Origin": PANEL})
        assert refused.status == 401
        assert refused.headers["access-control-allow-origin"] == PANEL, "so that the page can read why"
        with pytest.raises(InvalidStatus), watching(guarded.port, "/cameras/cam/ws", origin=PANEL):
            pass


def test_b81_a_websocket_of_an_allowed_origin_is_served(shared: Served) -> None:
    options: Any = {"origin": PANEL}
    with watching(shared.port, "/cameras/cam/ws", **options) as socket:
        received(socket)


def test_every_viewer_is_accounted_for(served: Served) -> None:
    """In the state and in the metrics, what each of them took itself."""
    taken: dict[str, list[int]] = {"?quality=30": [], "?quality=70&width=160": []}

    def watch(query: str) -> None:
        with StreamClient(served.port, f"/cameras/two/stream{query}") as client:
            for part in itertools.islice(client.parts(), 45):
                taken[query].append(len(part.body))
            done.wait(10)

    done = threading.Event()
    before = served.metric("pinhole_viewer_sent_bytes_total", camera="two")
    threads = [threading.Thread(target=watch, args=(query,)) for query in taken]
    for thread in threads:
        thread.start()
    try:
        served.until(lambda: all(len(sizes) == 45 for sizes in taken.values()))
        viewers = {v["quality"]: v for v in served.get("/api/v1/cameras/two").json()["viewers"]["connections"]}
        age_s = served.metric("pinhole_viewer_age_seconds", camera="two")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    for quality, sizes in zip((30, 70), taken.values(), strict=True):
        seen = viewers[quality]
        assert seen["kind"] == "mjpeg"
        assert seen["sent"] >= 45
        assert seen["sent_bytes"] >= sum(sizes)
        assert 0 < seen["age_ms"] < 10_000
        assert seen["frames_per_s"] > 0
        assert seen["bits_per_s"] > 0
    assert age_s > 0
    served.until(lambda: served.metric("pinhole_viewers") == 0)
    grown = served.metric("pinhole_viewer_sent_bytes_total", camera="two") - before
    assert grown >= sum(sum(sizes) for sizes in taken.values())
