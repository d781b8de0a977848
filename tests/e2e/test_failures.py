"""Cameras that stall, vanish and come back, as viewers, health and metrics see it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import cv2
import numpy as np

from kernels.formats import BGR8
from kernels.image import ImageSpec
from pipeline.sources.base import SourceError, SourceFormat
from tests.helpers.inprocess import Served, serving
from tests.helpers.mjpeg import Part, StreamClient
from tests.pipeline.fakes import Block, FakeSource, Maker, Picture, Step, pictures

SIZE = (64, 48)


def source(*script: Step) -> Callable[[], FakeSource]:
    return lambda: FakeSource(script, SourceFormat(ImageSpec.make(BGR8, *SIZE), 30, True))


def alive(served: Served) -> bool:
    return served.get("/health/live").status == 200


def reasons(served: Served) -> str:
    reply = served.get("/health/ready")
    return "" if reply.status == 200 else str(reply.json()["detail"])


def is_placeholder(part: Part) -> bool:
    return "x-pinhole-placeholder" in part.headers


def test_b104_a_stalled_source_is_unready_and_its_picture_says_its_age() -> None:
    block = Block(deaf=True)
    maker = Maker(source(*itertools.islice(pictures(), 30), block), source(*pictures(2000)))
    with serving({"cam": "fake://"}, source_factory=maker, stale_after_s=1.0, ready=False) as served:
        assert block.entered.wait(10)
        with StreamClient(served.port, "/stream") as client:
            parts = client.parts()
            first = next(parts)
            second = next(parts)
            assert second.headers.get("x-frame-sequence", "29") == first.headers["x-frame-sequence"] == "29"
            assert is_placeholder(second) or (
                float(second.headers["x-frame-age-ms"]) > float(first.headers["x-frame-age-ms"]) + 500
            )
            served.until(lambda: reasons(served) != "", 5)
            assert "cam" in reasons(served)
            assert alive(served), "the service itself is well"
            snapshot = served.get("/snapshot")
            assert snapshot.status == 503 or float(snapshot.headers["x-frame-age-ms"]) > 900
            # A fresh source takes over; the same connection goes on, with numbers that never went back.
            again = next(p for p in parts if int(p.headers.get("x-frame-sequence", -1)) > 29)
            assert not is_placeholder(again)
            served.until(lambda: reasons(served) == "", 5)
        block.release.set()
        assert served.metric("pinhole_reconnects_total") >= 1


def test_b06_a_single_frame_is_shown_at_once_and_repeated() -> None:
    """The strict reader gives a part out only with the delimiter behind it, as browsers show it."""
    block = Block()
    maker = Maker(source(Picture(5), block))
    with serving({"cam": "fake://"}, source_factory=maker, stale_after_s=60) as served:
        assert block.entered.wait(10)
        with StreamClient(served.port, "/stream") as client:
            started = time.monotonic()
            times = []
            for part in itertools.islice(client.parts(), 3):
                times.append(time.monotonic() - started)
                assert part.headers["x-frame-sequence"] == "0"
        assert times[0] < 0.9, "not only when the next one comes"
        assert 0.5 < times[2] - times[1] < 3.0
        block.release.set()


def test_b104_a_scene_that_does_not_change_is_not_a_stall() -> None:
    still = list(pictures(400, every_s=0.01))
    for step in still:
        step.value = 7
    with serving({"cam": "fake://"}, source_factory=Maker(source(*still)), stale_after_s=0.5) as served:
        time.sleep(0.8)
        assert reasons(served) == ""
        assert float(served.get("/snapshot").headers["x-frame-age-ms"]) < 500
        assert "x-pinhole-stale" not in served.get("/snapshot").headers


def test_a_viewer_stays_through_a_loss_and_sees_why() -> None:
    lost = SourceError("the cable is out")
    maker = Maker(source(*itertools.islice(pictures(), 20), lost), source(*pictures(3000)))
    with (
        serving({"cam": "fake://"}, source_factory=maker, ready=False) as served,
        StreamClient(served.port, "/stream") as client,
    ):
        parts = client.parts()
        placeholder = next(part for part in parts if is_placeholder(part))
        assert "reconnecting" in placeholder.headers["x-pinhole-placeholder"]
        assert "the cable is out" in placeholder.headers["x-pinhole-placeholder"]
        assert "x-frame-sequence" not in placeholder.headers
        picture = cv2.imdecode(np.frombuffer(placeholder.body, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        assert picture.shape == (SIZE[1], SIZE[0], 3)
        encoded = served.metric("pinhole_frames_encoded_total")
        processed = served.metric("pinhole_frames_processed_total")
        assert encoded <= processed, "placeholders are not counted as frames"
        back = next(part for part in parts if not is_placeholder(part))
        assert int(back.headers["x-frame-sequence"]) >= 20


def test_a_snapshot_of_a_camera_that_never_had_a_picture_says_why_soon() -> None:
    with serving({"gone": "file:///nowhere/film.mp4"}, ready=False) as served:
        started = time.monotonic()
        reply = served.get("/snapshot")
        assert time.monotonic() - started < 4
        assert reply.status == 503
        problem = reply.json()
        assert problem["camera"] == "gone"
        assert problem["state"] in ("starting", "reconnecting")
        assert "/nowhere/film.mp4" in problem["detail"] or problem["state"] == "starting"
        assert reply.headers["retry-after"] == "1"
        with StreamClient(served.port, "/stream") as client:
            part = next(client.parts())
            assert is_placeholder(part)


def test_one_bad_camera_leaves_the_others_alone() -> None:
    def factory(uri: str) -> FakeSource:
        return source(*pictures(4000))() if "good" in uri else source(SourceError("dead"))()

    with serving({"good": "fake://good", "bad": "fake://bad"}, source_factory=factory, ready=False) as served:
        served.until(lambda: served.get("/cameras/good/snapshot").status == 200)
        served.until(lambda: served.engine.get("bad").state.value == "reconnecting")
        state = served.get("/api/v1/state").json()["cameras"]
        assert state["good"]["ready"]
        assert not state["bad"]["ready"]
        assert "dead" in state["bad"]["cause"]
        assert "bad" in reasons(served)
        assert "good" not in reasons(served)


def test_an_ended_camera_keeps_its_last_picture_and_is_ready() -> None:
    with serving({"film": "fake://"}, source_factory=Maker(source(*pictures(12))), ready=False) as served:
        served.until(lambda: served.engine.get("film").state.value == "ended")
        film = served.get("/api/v1/cameras/film").json()
        assert (film["ready"], film["fps"], film["capture_fps"]) == (True, 0.0, 0.0), (
            "at once, not when a window is over"
        )
        served.until(lambda: served.get("/snapshot").headers.get("x-frame-sequence") == "11")
        reply = served.get("/snapshot")
        assert reply.headers["x-pinhole-stale"] == "ended"
        assert reasons(served) == ""
        with StreamClient(served.port, "/stream") as client:
            times: list[float] = []
            for part in itertools.islice(client.parts(), 3):
                assert part.headers["x-frame-sequence"] == "11"
                times.append(time.monotonic())
        assert 0.5 < times[2] - times[1] < 3.0, "repeated each second"
