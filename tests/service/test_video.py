"""The maker of access units, over a camera that does what the test says, decoded again by FFmpeg."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.formats import BGR8, NV12, PixelFormat
from pipeline.demand import Place
from pipeline.state import CameraState
from service import video
from service.picture import View
from service.video import AccessUnit, VideoRenderer, VideoVariant
from tests.service.fakes import FakeCamera

av = pytest.importorskip("av")

SIZE = (160, 120)


class Scene:
    """A running camera, its renderer, a clock that only goes on with :meth:`later`, and who decodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, format: PixelFormat = BGR8, **options: Any) -> None:
        self.camera = FakeCamera(format=format, size=SIZE)
        self.camera.state = CameraState.RUNNING
        self.now_ns = time.monotonic_ns()
        monkeypatch.setattr(video, "time", SimpleNamespace(monotonic_ns=lambda: self.now_ns))
        variant = VideoVariant("cam", **{"view": View.RESULT, "format": "h264", "quality": 0, "width": None, **options})
        self.renderer = VideoRenderer(self.camera, variant)
        self._decoder = av.CodecContext.create("h264", "r")

    def later(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def frame(self) -> AccessUnit | None:
        """One more of the camera's, 33 ms later, rendered."""
        self.later(1 / 30)
        self.camera.show()
        return self.made()

    def made(self) -> AccessUnit | None:
        unit = self.renderer.render()
        assert self.camera.leases_out == 0
        assert unit is None or isinstance(unit, AccessUnit)
        return unit

    def decoded(self, unit: AccessUnit | None) -> npt.NDArray[np.int_]:
        assert unit is not None
        frames = self._decoder.decode(av.Packet(unit.data))
        assert len(frames) == 1
        assert (frames[0].width, frames[0].height) == (unit.width, unit.height)
        return np.asarray(frames[0].to_ndarray(format="bgr24"), int)


@pytest.mark.parametrize(
    ("format", "view", "width", "level"),
    [(BGR8, View.RESULT, None, 2), (BGR8, View.SOURCE, None, 253), (NV12, View.RESULT, 80, 2)],
)
def test_each_frame_is_one_access_unit(
    monkeypatch: pytest.MonkeyPatch, format: PixelFormat, view: View, width: int | None, level: int
) -> None:
    scene = Scene(monkeypatch, format, view=view, width=width)
    units = [scene.frame() for _ in range(3)]
    pictures = [scene.decoded(unit) for unit in units]
    assert np.abs(pictures[-1] - level).max() <= 4
    assert [unit and (unit.sequence, unit.keyframe, unit.chain_version) for unit in units] == [
        (0, True, 1000), (1, False, 1001), (2, False, 1002),
    ]  # fmt: skip
    assert scene.made() is None, "nothing new"
    stamps = [unit.pts for unit in units if unit]
    assert stamps == sorted(set(stamps))


def test_however_many_ask_there_is_one_keyframe_in_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.frame()
    keys = []
    for _ in range(50):  # 1.7 s; somebody asks all the time
        scene.renderer.request_keyframe()
        unit = scene.frame()
        assert unit is not None
        keys.append(unit.keyframe)
    assert sum(keys) == 3
    scene.later(1)
    for _ in range(5):
        unit = scene.frame()
        assert unit is not None
        keys.append(unit.keyframe)
    assert sum(keys) == 4, "the last request is answered, and none is answered twice"


def test_who_joins_a_still_picture_need_not_wait_for_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    for _ in range(3):
        scene.frame()
    scene.later(0.6)
    assert scene.made() is None
    scene.renderer.request_keyframe()
    unit = scene.made()
    assert unit is not None
    assert (unit.keyframe, unit.sequence) == (True, 2)
    assert np.abs(scene.decoded(unit) - 2).max() <= 4


def test_the_last_picture_is_repeated_and_says_that_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    fresh = scene.frame()
    scene.decoded(fresh)
    assert fresh is not None
    scene.later(0.9)
    assert scene.made() is None
    scene.later(0.2)
    again = scene.made()
    assert again is not None
    assert (again.sequence, again.captured_ns) == (fresh.sequence, fresh.captured_ns)
    assert again.pts > fresh.pts
    assert np.abs(scene.decoded(again)).max() <= 4
    assert scene.made() is None, "once a second"
    scene.camera.config.stale_after_s = 0.0
    scene.later(1.1)
    marked = scene.decoded(scene.made())
    assert np.abs(marked[:60]).max() <= 6, "the picture is still there"
    assert marked[-6:, :, 2].mean() > 120, "below it a band, red"
    scene.camera.state = CameraState.ENDED
    scene.later(1.1)
    assert np.abs(scene.decoded(scene.made())[-6:]).mean() <= 12, "what has ended is what it was"


def test_a_camera_without_a_picture_shows_why_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.decoded(scene.frame())
    scene.camera.state, scene.camera.cause = CameraState.RECONNECTING, "unplugged"
    placeholder = scene.made()
    assert placeholder is not None
    assert "unplugged" in placeholder.placeholder
    assert scene.decoded(placeholder).std() > 5
    assert scene.made() is None
    scene.later(1.1)
    again = scene.made()
    assert again is not None
    assert again.placeholder
    scene.decoded(again)
    scene.camera.state = CameraState.RUNNING
    assert np.abs(scene.decoded(scene.frame()) - 1).max() <= 6


def test_it_claims_results_in_host_memory_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    assert scene.camera.claims == [Place.HOST]
    scene.frame()
    scene.renderer.close()
    scene.renderer.close()
    assert scene.camera.claims == []
    assert scene.frame() is None, "nothing is made any more"
    assert Scene(monkeypatch, view=View.SOURCE).camera.claims == [], "what the camera wrote is where it is"
