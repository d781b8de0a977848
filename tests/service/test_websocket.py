"""Live pictures over a WebSocket, as the reference describes them, to a client library of others."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from service.queries import StreamQuery
from service.settings import Limits, Settings
from service.websocket import HEADER_MEANINGS, BadMessageError, read_message
from tests.helpers.inprocess import Served, serving
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import SMALL_CARD
from tests.helpers.websocket import Shown, received, watching

ONLY_SOMETIMES = {"stale", "placeholder"}


def code_of(message: Shown, scale: float = 1.0) -> int:
    """The number that the picture itself shows; its size is what the header says."""
    picture = cv2.imdecode(np.frombuffer(message.picture, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    assert picture.shape == (message.header["height"], message.header["width"], 3)
    top, bottom = read_codes(picture, scale)
    assert top == bottom
    assert top is not None
    return top


def ended(socket: ClientConnection) -> tuple[int, str]:
    """Read on until the service closes; with which code, and why."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            received(socket)
    assert socket.close_code is not None
    return socket.close_code, socket.close_reason or ""


def silent(socket: ClientConnection) -> None:
    """Read what is on its way, until nothing comes for a while."""
    with contextlib.suppress(TimeoutError):
        while True:
            socket.recv(timeout=0.3)


def test_each_message_is_a_frame_and_its_header(served: Served) -> None:
    with watching(served.port, "/cameras/two/ws") as socket:
        assert socket.protocol.extensions == [], "compressed pictures would be compressed again"
        messages = [received(socket) for _ in range(12)]
    for message in messages:
        header = message.header
        assert set(header) == set(HEADER_MEANINGS) - ONLY_SOMETIMES
        assert code_of(message) == header["sequence"]
        assert (header["camera"], header["view"], header["type"]) == ("two", "result", "image/jpeg")
        assert abs(header["timestamp"] - time.time()) < 10
        assert 0 <= header["encoded_ms"] <= header["age_ms"] + 0.1 < 10_000
        assert header["chain_version"] >= 1
    sequences = [message.header["sequence"] for message in messages]
    assert sequences == sorted(set(sequences))


@pytest.mark.parametrize(
    ("query", "size", "view"), [("width=160&quality=60", (160, 58), "result"), ("view=source", (352, 128), "source")]
)
def test_parameters_are_those_of_a_stream(served: Served, query: str, size: tuple[int, int], view: str) -> None:
    with watching(served.port, f"/cameras/one/ws?{query}") as socket:
        header = received(socket).header
    assert (header["width"], header["height"]) == size
    assert header["view"] == view


def test_a_rate_bounds_what_comes(served: Served) -> None:
    with watching(served.port, "/cameras/two/ws?fps=5") as socket:
        received(socket)
        started = time.monotonic()
        sequences = [received(socket).header["sequence"] for _ in range(6)]
    assert time.monotonic() - started > 6 / 5 * 0.75
    assert all(b > a for a, b in itertools.pairwise(sequences))


def test_a_hidden_tab_costs_nothing_and_comes_back_to_the_newest_frame(served: Served) -> None:
    with watching(served.port, "/cameras/two/ws?quality=37") as socket:
        received(socket)
        socket.send('{"pause": true}')
        served.until(lambda: served.get("/api/v1/cameras/two").json()["viewers"]["connections"][0]["paused"])
        silent(socket)
        encoded = served.metric("pinhole_frames_encoded_total", camera="two")
        captured = served.metric("pinhole_frames_captured_total", camera="two")
        served.until(lambda: served.metric("pinhole_frames_captured_total", camera="two") > captured + 5)
        assert served.metric("pinhole_frames_encoded_total", camera="two") == encoded
        assert served.metric("pinhole_viewers", camera="two", kind="websocket") == 1, "it keeps its place"
        socket.send('{"pause": false}')
        after = received(socket)
        assert code_of(after) >= captured
        assert received(socket).header["sequence"] > after.header["sequence"]


def test_a_client_changes_what_it_sees_without_a_new_connection(served: Served) -> None:
    def until(socket: ClientConnection, width: int, view: str = "result") -> Shown:
        while True:
            message = received(socket)
            if (message.header["width"], message.header["view"]) == (width, view):
                return message

    with watching(served.port, "/cameras/two/ws") as socket:
        until(socket, 352)
        socket.send('{"width": 160, "quality": 20}')
        small = until(socket, 160)
        socket.send('{"view": "source", "width": null}')
        until(socket, 352, "source")
        socket.send('{"view": null, "quality": 90}')
        assert len(until(socket, 352).picture) > len(small.picture)
        served.until(lambda: served.get("/api/v1/cameras/two").json()["viewers"]["live"] == 1)
        [connection] = served.get("/api/v1/cameras/two").json()["viewers"]["connections"]
        assert (connection["kind"], connection["quality"], connection["width"]) == ("websocket", 90, None)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("{", "a JSON object"), ("[1]", "a JSON object"), (b'{"pause": true}', "a JSON object"),
        ("[" * 3000, "a JSON object"), ('{"pause": 1}', "true or false"), ('{"pause": "yes"}', "true or false"),
        ('{"widht": 320}', "'widht' is not one of pause, view, quality, width, fps"),
        ('{"width": 200}', "160, 320, 480"), ('{"width": true}', "160, 320, 480"), ('{"quality": 0}', "1 to 100"),
        ('{"view": "both"}', "result, source"), ('{"fps": -1}', "0.1 to 1000"), ('{"fps": NaN}', "fps"),
    ],
)  # fmt: skip
def test_a_message_that_is_not_understood_ends_it_and_says_why(served: Served, message: Any, reason: str) -> None:
    with watching(served.port, "/cameras/two/ws") as socket:
        socket.send(message)
        code, said = ended(socket)
    assert code == 1008
    assert reason in said


def test_a_message_that_is_too_long_is_not_read(served: Served) -> None:
    with watching(served.port, "/cameras/two/ws") as socket:
        socket.send('{"pause": ' + " " * 10_000 + "true}")
        assert ended(socket)[0] == 1009


def test_a_message_changes_only_what_it_names() -> None:
    wishes = StreamQuery(quality=50, width=320, fps=5.0)
    assert read_message('{"width": null}', wishes) == (StreamQuery(quality=50, fps=5.0), None)
    assert read_message('{"pause": true, "fps": 2}', wishes) == (StreamQuery(quality=50, width=320, fps=2.0), True)
    assert read_message("{}", wishes) == (wishes, None)
    with pytest.raises(BadMessageError):
        read_message(None, wishes)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Served]:
    """A service with two places and two renditions."""
    settings = Settings(limits=Limits(max_viewers=2, max_variants=2))
    with serving({"cam": SMALL_CARD}, settings=settings) as served:
        yield served


def refusal(port: int, path: str, **options: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, header fields and problem with which a handshake is refused."""
    with pytest.raises(InvalidStatus) as caught, watching(port, path, **options):
        pass
    response = caught.value.response
    return response.status_code, dict(response.headers.raw_items()), json.loads(bytes(response.body or b"{}"))


def test_what_cannot_be_is_refused_before_it_opens(narrow: Served) -> None:
    status, _, problem = refusal(narrow.port, "/cameras/cma/ws")
    assert status == 404
    assert "did you mean 'cam'" in problem["detail"]
    status, _, problem = refusal(narrow.port, "/cameras/cam/ws?width=200")
    assert status == 422
    assert "160, 320, 480" in problem["errors"][0]["allowed"]
    assert refusal(narrow.port, "/cameras/cam/ws", origin="http://evil.test")[0] == 403
    with watching(narrow.port, "/cameras/cam/ws?quality=10"), watching(narrow.port, "/cameras/cam/ws?quality=20"):
        status, headers, problem = refusal(narrow.port, "/cameras/cam/ws?quality=10")
        assert status == 503
        assert int(headers["retry-after"]) > 0
        assert "2 places" in problem["detail"]
    narrow.until(lambda: narrow.metric("pinhole_viewers") == 0)


def test_more_renditions_than_are_allowed_are_refused_at_once_and_later(narrow: Served) -> None:
    with watching(narrow.port, "/cameras/cam/ws?quality=10") as socket:
        received(socket)
        assert narrow.get("/snapshot?quality=20").status == 200  # it lingers for a second, and gives way
        with watching(narrow.port, "/cameras/cam/ws?quality=30") as other:
            received(other)
            assert narrow.get("/snapshot?quality=40").status == 429
            other.send('{"quality": 50}')
            assert ended(other)[0] == 1013
    narrow.until(lambda: narrow.metric("pinhole_viewers") == 0)


def test_a_camera_without_a_picture_says_why() -> None:
    with (
        serving({"gone": "opencv:///dev/video97"}, ready=False) as served,
        watching(served.port, "/cameras/gone/ws") as socket,
    ):
        header = received(socket).header
    assert header["placeholder"].startswith("reconnecting")
    assert set(header) == {"camera", "view", "type", "width", "height", "placeholder"}


def test_the_end_of_the_service_is_said() -> None:
    with serving({"cam": SMALL_CARD}) as served, watching(served.port, "/cameras/cam/ws") as socket:
        received(socket)
        served.server.should_exit = True
        assert ended(socket)[0] == 1001


def test_b120_a_camera_that_is_removed_ends_its_viewers() -> None:
    with (
        serving({"cam": SMALL_CARD, "stays": SMALL_CARD}) as served,
        watching(served.port, "/cameras/cam/ws") as socket,
        watching(served.port, "/cameras/stays/ws") as other,
    ):
        received(socket)
        assert served.engine.remove("cam")
        assert ended(socket)[0] == 1001
        received(other)
