"""Controls and devices over HTTP and on the command line, of a camera whose driver is in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.sources.v4l2 import V4l2
from pipeline.v4l2 import abi
from service.cli import main
from tests.helpers.inprocess import Served, serving
from tests.helpers.server import SMALL_CARD
from tests.pipeline.v4l2.fake_driver import FakeCamera, FakeControl, FakeSystem, Modes, make_nodes

MODES: Modes = {"GREY": {(64, 48): (30, 60), (32, 24): (30,)}, "YV12": {(64, 48): (30,)}}


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    return make_nodes(tmp_path / "dev", 0)


@pytest.fixture
def camera(dev: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCamera:
    controls = [
        FakeControl(1, "Brightness", abi.CTRL_INTEGER),
        FakeControl(2, "Auto Exposure", abi.CTRL_MENU, 0, 1, 1, 0, 0, menu={0: "Auto Mode", 1: "Manual Mode"}),
    ]
    camera = FakeCamera(MODES, pace_s=0.01, controls=controls)
    system = FakeSystem({str(dev / "video0"): camera})
    for name, value in (("system", system), ("dev", dev), ("sysfs", dev)):
        monkeypatch.setattr(V4l2, name, value)
    return camera


@pytest.fixture
def served(dev: Path, camera: FakeCamera) -> Iterator[Served]:
    with serving({"cam": f"v4l2://{dev}/video0?size=64x48", "card": SMALL_CARD}) as served:
        yield served


def test_controls_are_read_set_and_refused(served: Served, camera: FakeCamera, dev: Path) -> None:
    path = "/api/v1/cameras/cam/controls"
    answer = served.get(path).json()
    assert answer["device"] == str(dev / "video0")
    brightness, exposure = answer["controls"]
    assert (brightness["name"], brightness["minimum"], brightness["maximum"], brightness["value"]) == (
        "brightness",
        0,
        255,
        128,
    )
    assert exposure["menu"] == ["Auto Mode", "Manual Mode"]
    put = served.request("PUT", path, {"controls": {"brightness": 7, "auto_exposure": "Manual Mode"}})
    assert [one["value"] for one in put.json()["controls"]] == [7, "Manual Mode"]
    assert [one.value for one in camera.controls] == [7, 1]
    for body, field in (
        ({"controls": {"brightness": 256}}, "controls.brightness"),
        ({"controls": {"brigtness": 1}}, "controls.brigtness"),
        ({"controls": {}}, "controls"), ({"controls": [1]}, "controls"),
    ):  # fmt: skip
        refused = served.request("PUT", path, body)
        assert (refused.status, refused.json()["errors"][0]["field"]) == (422, field)
    assert served.request("PUT", path, {}).status == 422
    assert camera.controls[0].value == 7
    other = served.get("/api/v1/cameras/card/controls")
    assert (other.status, other.json()["type"]) == (409, "urn:pinhole:no-controls")
    assert served.get("/api/v1/cameras/none/controls").status == 404


def test_a_camera_that_is_away_answers_503_and_when_to_ask_again(served: Served, camera: FakeCamera) -> None:
    camera.gone = True
    served.until(lambda: served.get("/api/v1/cameras/cam").json()["state"] == "reconnecting", 20)
    answer = served.get("/api/v1/cameras/cam/controls")
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert "gone" in answer.json()["detail"] or "away" in answer.json()["detail"]


def test_state_says_what_was_asked_for_and_agreed_and_sources_list_the_device(served: Served, dev: Path) -> None:
    camera = served.get("/api/v1/cameras/cam").json()
    assert camera["links"]["controls"] == "/api/v1/cameras/cam/controls"
    assert "controls" not in served.get("/api/v1/cameras/card").json()["links"]
    details = camera["source"]["details"]
    assert details["requested"] == {"size": "64x48", "fps": None, "format": None}
    assert (details["negotiated"]["format"], details["memory"], details["copies"]) == ("GREY", "slots (USERPTR)", None)
    assert details["stamps"]["clock"] == "monotonic"
    sources = {one["scheme"]: one["devices"] for one in served.get("/api/v1/sources").json()["sources"]}
    assert [one["uri"] for one in sources["v4l2"]] == [f"v4l2://{dev}/video0"]
    assert sources["testcard"] == []


def test_the_command_lists_cameras(dev: Path, camera: FakeCamera) -> None:
    text = CliRunner().invoke(main, ["cameras"]).output
    assert f"v4l2://{dev}/video0  Fake" in text
    assert "GREY    64x48 at up to 60 fps, 32x24 at 30 fps" in text
    assert "[YV12]  64x48 at 30 fps" in text
    listed = json.loads(CliRunner().invoke(main, ["cameras", "--json"]).output)["cameras"]
    assert listed == V4l2.devices()
    (dev / "video0").unlink()
    assert "no V4L2 camera here" in CliRunner().invoke(main, ["cameras"]).output
