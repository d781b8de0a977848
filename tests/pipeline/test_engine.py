"""All cameras together: names, limits, independence, and an end that is complete or says what is missing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernels.device import HostDevice, NullDevice
from kernels.errors import InputError, OutOfMemoryError, UnknownNameError
from pipeline.camera import CameraConfig, CameraState
from pipeline.engine import Engine, EngineStoppedError
from pipeline.sources.base import Source, SourceError, SourceFormat
from tests.pipeline.fakes import Block, FakeSource, held, image, pictures, source_format, then, until, until_processed


class Closing(NullDevice):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def fake(uri: str) -> Source:
    return FakeSource(pictures(every_s=0.005))


def config(name: str, uri: str = "fake://") -> CameraConfig:
    return CameraConfig(name, uri)


def test_cameras_by_name_in_order() -> None:
    device = Closing()
    engine = Engine(device, source_factory=fake)
    for name in ("b", "a", "c"):
        engine.add(config(name), start=False)
    snapshot = engine.cameras
    assert list(snapshot) == ["b", "a", "c"]
    assert engine.get("a").name == "a"
    assert engine.remove("a")
    assert list(engine.cameras) == ["b", "c"]
    assert list(snapshot) == ["b", "a", "c"], "a snapshot"
    for use in (lambda: engine.get("bb"), lambda: engine.remove("bb")):
        with pytest.raises(UnknownNameError) as caught:
            use()
        assert caught.value.known == ("b", "c")
    assert engine.stop(5) == []
    assert device.closed == 1


def test_a_name_is_taken_once_and_free_again_after_removal() -> None:
    engine = Engine(NullDevice(), source_factory=fake)
    engine.add(config("a"))
    with pytest.raises(InputError) as caught:
        engine.add(config("a"))
    assert caught.value.field == "name"
    assert engine.remove("a", 5)
    engine.add(config("a"))
    assert engine.stop(5) == []


def test_there_is_a_limit_of_cameras() -> None:
    engine = Engine(NullDevice(), max_cameras=3, source_factory=fake)
    for i in range(3):
        engine.add(config(f"c{i}"), start=False)
    with pytest.raises(InputError, match="at most 3") as caught:
        engine.add(config("one-more"))
    assert caught.value.field == "cameras"
    assert engine.stop(1) == []


def test_many_threads_that_add_the_same_name_make_one_camera() -> None:
    engine = Engine(NullDevice(), source_factory=fake)
    gate = threading.Barrier(8)
    refused: list[str] = []

    def add() -> None:
        gate.wait()
        try:
            engine.add(config("same"))
        except InputError as error:
            refused.append(error.field)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["name"] * 7
    assert sum(t.name == "cap-same" for t in threading.enumerate()) == 1
    assert engine.stop(5) == []


def test_a_wrong_uri_adds_nothing() -> None:
    engine = Engine(NullDevice())
    with pytest.raises(InputError):
        engine.add(config("a", "nonsense://"))
    assert engine.cameras == {}
    assert engine.stop(1) == []


def test_a_missing_file_is_refused_at_once_and_a_missing_camera_may_come() -> None:
    engine = Engine(NullDevice())
    with pytest.raises(InputError, match="does not exist") as caught:
        engine.add(config("a", "file:///nowhere/x.mp4"))
    assert caught.value.field == "uri"
    assert engine.cameras == {}
    engine.add(config("a", "file:///nowhere/x.mp4"), start=False, check=False)
    engine.add(config("b", "opencv:///dev/video97"), start=False)
    assert list(engine.cameras) == ["a", "b"]
    assert engine.stop(1) == []


def test_start_starts_those_that_are_stopped() -> None:
    engine = Engine(NullDevice(), source_factory=fake)
    first, second = engine.add(config("a")), engine.add(config("b"), start=False)
    assert second.state is CameraState.STOPPED
    engine.start()
    until_processed(first, 1)
    until_processed(second, 1)
    assert engine.stop(5) == []
    assert {camera.state for camera in engine.cameras.values()} == {CameraState.STOPPED}


def test_after_the_stop_nothing_begins_any_more() -> None:
    device = Closing()
    engine = Engine(device, source_factory=fake)
    engine.add(config("a"))
    assert engine.stop(5) == []
    with pytest.raises(EngineStoppedError):
        engine.add(config("b"))
    with pytest.raises(EngineStoppedError):
        engine.start()
    assert engine.stop(5) == []
    assert held(device) == 0


@pytest.mark.parametrize("kind", ["raises at start", "returns nothing", "no memory", "unexpected"])
def test_b30_one_camera_that_fails_leaves_the_other_alone(kind: str) -> None:
    class Broken(FakeSource):
        def open(self) -> SourceFormat:
            if kind == "raises at start":
                raise OSError(28, "No space left on device")
            if kind == "no memory":
                return source_format(image(16000, 16000))
            return super().open()

        def fill(self, view):  # type: ignore[no-untyped-def]
            if kind == "returns nothing":
                return
            raise ValueError("what?")

    class Small(NullDevice):
        def allocate_slot(self, nbytes: int):  # type: ignore[no-untyped-def]
            if nbytes > 1_000_000:
                raise OutOfMemoryError("pinned host memory", nbytes, 1, "lower the picture size")
            return super().allocate_slot(nbytes)

    device = Small()
    engine = Engine(device, source_factory=lambda uri: Broken() if "bad" in uri else fake(uri))
    good = engine.add(config("good"))
    until_processed(good, 20)
    rate_before = good.statistics().fps
    bad = engine.add(config("bad", "fake://bad"))
    until(lambda: bad.state in (CameraState.FAILED, CameraState.RECONNECTING), "its error state")
    assert bad.cause
    if kind == "raises at start":
        assert "No space left on device" in bad.cause
    if kind == "returns nothing":
        assert "NoneType where a Capture was expected" in bad.cause
    until_processed(good, good.statistics().processed + 100)
    rate_after = good.statistics().fps
    assert rate_before is not None
    assert rate_after is not None
    assert rate_after > rate_before / 2
    assert good.statistics().reconnects == 0
    health = engine.health()
    assert health["good"].ready
    assert not health["bad"].ready
    assert bad.cause in health["bad"].reasons[0]
    assert engine.stop(5) == []
    assert held(device) == 0


def test_stop_is_parallel_bounded_and_says_what_did_not_end() -> None:
    device = Closing()
    blocks = [Block(deaf=True) for _ in range(4)]
    sources = iter([FakeSource(then(pictures(2), block)) for block in blocks])
    engine = Engine(device, source_factory=lambda uri: next(sources) if "stuck" in uri else fake(uri))
    for i in range(4):
        engine.add(config(f"stuck{i}", "fake://stuck"))
        engine.add(config(f"fine{i}"))
    for block in blocks:
        assert block.entered.wait(10)
    began = time.monotonic()
    late = engine.stop(0.5)
    assert time.monotonic() - began < 2.5
    assert late == [f"camera stuck{i}" for i in range(4)]
    assert device.closed == 0, "the device stays under what still uses it"
    for block in blocks:
        block.release.set()
    assert engine.stop(10) == []
    assert device.closed == 1
    assert held(device) == 0


def test_a_removed_camera_that_is_stuck_is_not_forgotten() -> None:
    block = Block(deaf=True)
    engine = Engine(Closing(), source_factory=lambda uri: FakeSource(then(pictures(2), block)))
    engine.add(config("a"))
    assert block.entered.wait(10)
    assert not engine.remove("a", 0.1)
    assert engine.cameras == {}
    assert engine.stop(0.1) == ["camera a"]
    block.release.set()
    assert engine.stop(10) == []


def test_description_is_plain_and_without_credentials() -> None:
    def absent(uri: str) -> Source:
        source = FakeSource()
        source.open_error = SourceError(f"{uri} refuses")
        return source

    engine = Engine(HostDevice(), source_factory=absent)
    camera = engine.add(config("door", "rtsp://user:geheim@10.0.0.1/x"))
    until(lambda: camera.state is CameraState.RECONNECTING)
    described = engine.describe()
    assert described["device"]["backend"] == "opencv"
    assert described["cameras"]["door"]["state"] == "reconnecting"
    assert "10.0.0.1" in described["cameras"]["door"]["uri"]
    assert "geheim" not in str(described)
    assert engine.stop(5) == []


def test_a_real_source_runs_through_the_registry() -> None:
    engine = Engine(HostDevice())
    camera = engine.add(config("card", "testcard://?size=352x128&fps=100&format=BGR8"))
    until_processed(camera, 5)
    lease = camera.latest()
    assert lease is not None
    with lease:
        assert (lease.result.spec.width, lease.result.spec.height) == (352, 128)
    assert engine.stop(5) == []


STUCK = """
import subprocess
import sys
import threading
from kernels.device import NullDevice
from pipeline.engine import Engine
from pipeline.camera import CameraConfig
from tests.pipeline.fakes import Block, FakeSource

block = Block(deaf=True)
engine = Engine(NullDevice(), source_factory=lambda uri: FakeSource([block]))
engine.add(CameraConfig("cam", "fake://"))
assert block.entered.wait(10)
print(engine.stop(0.2))
"""


def test_a_stuck_source_does_not_keep_the_process_from_ending() -> None:
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", STUCK], cwd=root, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "camera cam" in done.stdout
