"""A profile: bounded, one at a time, with the rules of every other change, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from kernels import profiler
from kernels.device import NullDevice
from kernels.errors import DeviceFailedError, DeviceUnavailableError
from kernels.profiler import RANGES, Ranges
from pipeline.camera import Camera, CameraConfig
from service.live import HubClosedError
from service.profile import Profiler, ProfileRunningError
from service.settings import Settings
from tests.helpers.inprocess import serving
from tests.helpers.mjpeg import StreamClient
from tests.helpers.server import SMALL_CARD
from tests.pipeline.fakes import until_processed
from tests.service.test_api import assert_problem

PATH = "/api/v1/profile"
BROKEN = DeviceFailedError("cudaProfilerStart", 999, "cudaErrorUnknown", False, "see the log")


class Profiled(NullDevice):
    """Counts what its profiler was told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.fail_start: Exception | None = None
        self.fail_stop: Exception | None = None
        self.may_start = threading.Event()
        self.may_start.set()

    def start_profiler(self) -> None:
        assert self.may_start.wait(10)
        if self.fail_start is not None:
            raise self.fail_start
        self.calls.append("start")

    def stop_profiler(self) -> None:
        self.calls.append("stop")
        if self.fail_stop is not None:
            raise self.fail_stop


class Recorder:
    """Stands in for CuPy's NVTX."""

    available = True

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = {}
        self.ranges: list[str] = []
        self.marks: list[str] = []

    def RangePush(self, name: str) -> None:  # noqa: N802 - CuPy's name
        self.open.setdefault(threading.get_ident(), []).append(name)

    def RangePop(self) -> None:  # noqa: N802
        self.ranges.append(self.open[threading.get_ident()].pop())

    def Mark(self, name: str) -> None:  # noqa: N802
        self.marks.append(name)


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder = Recorder()
    monkeypatch.setattr(profiler, "find_nvtx", lambda: recorder)
    yield recorder
    assert not RANGES.on, "NVTX was left on"


async def over(profile: Profiler) -> None:
    """Wait for its end."""
    for _ in range(1000):
        if not profile.running and len(asyncio.all_tasks()) == 1:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the profile did not end")


def test_it_ends_by_itself_and_there_is_one_at_a_time(nvtx: Recorder) -> None:
    async def scenario() -> None:
        device = Profiled()
        profile = Profiler(lambda: device)
        assert not await profile.stop()
        assert await profile.start(0.1)
        assert RANGES.on
        with pytest.raises(ProfileRunningError) as caught:
            await profile.start(0.1)
        assert 0 <= caught.value.left_s <= 0.1
        assert device.calls == ["start"]
        await over(profile)
        assert device.calls == ["start", "stop"]
        assert not RANGES.on
        await profile.start(60)
        assert await profile.stop()
        assert not await profile.stop()
        assert device.calls == ["start", "stop"] * 2
        await profile.start(60)
        await profile.close()
        assert device.calls == ["start", "stop"] * 3
        with pytest.raises(HubClosedError):
            await profile.start(1)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_of_many_at_once_one_is_taken(nvtx: Recorder) -> None:
    async def scenario() -> None:
        device = Profiled()
        profile = Profiler(lambda: device)
        answers = await asyncio.gather(*(profile.start(60) for _ in range(20)), return_exceptions=True)
        assert sum(answer is True for answer in answers) == 1
        assert sum(isinstance(answer, ProfileRunningError) for answer in answers) == 19
        stopped = await asyncio.gather(*(profile.stop() for _ in range(20)))
        assert stopped.count(True) == 1
        assert device.calls == ["start", "stop"]

    asyncio.run(scenario())


def test_what_fails_leaves_no_profile_behind(nvtx: Recorder) -> None:
    async def scenario() -> None:
        device = Profiled()
        profile = Profiler(lambda: device)
        device.fail_start = BROKEN
        with pytest.raises(DeviceFailedError):
            await profile.start(60)
        assert not profile.running
        assert not RANGES.on
        device.fail_start, device.fail_stop = None, BROKEN
        await profile.start(60)
        assert await profile.stop()
        assert not profile.running
        device.fail_stop = None
        device.may_start.clear()  # the client's request is cancelled while the driver starts
        request = asyncio.get_running_loop().create_task(profile.start(0.1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        request.cancel()
        device.may_start.set()
        await asyncio.gather(request, return_exceptions=True)
        await over(profile)
        assert device.calls[-1] == "stop"
        assert not RANGES.on

    asyncio.run(scenario())


def test_without_a_gpu_it_says_so_and_bad_requests_say_what_is_wrong() -> None:
    with serving({"one": SMALL_CARD}) as served:
        problem = assert_problem(served.request("POST", PATH, {"action": "start", "seconds": 1}), 501)
        assert "GPU" in problem["detail"]
        assert "/trace" in problem["detail"]
        for body, field in (
            ({}, "action"), ({"action": "begin"}, "action"), ({"action": ["start"]}, "action"),
            ({"action": "start", "second": 1}, "second"), ({"action": "stop", "seconds": 1}, "seconds"),
            *(({"action": "start", "seconds": s}, "seconds") for s in (0, -1, 61, "5", True, None, [1])),
        ):  # fmt: skip
            assert_problem(served.request("POST", PATH, body), 422, field)
        for text in (b'{"action": "start", "seconds": NaN}', b'{"action": "start", "seconds": 1e999}'):
            reply = served.request("POST", PATH, text, headers={"Content-Type": "application/json"})
            assert_problem(reply, 422, "seconds")
        assert json.loads(served.request("POST", PATH, {"action": "stop"}).body) == {"running": False, "stopped": False}
        assert_problem(served.get(PATH), 405)


def test_over_http_with_every_stage_named_and_no_profile_after_the_end(nvtx: Recorder) -> None:
    device = Profiled()
    token = "a token that is long enough"
    settings, shown = Settings(token=SecretStr(token)), {"Authorization": f"Bearer {token}"}
    start = {"action": "start", "seconds": 60}
    with serving({"one": SMALL_CARD}, device=device, settings=settings) as served:
        assert_problem(served.request("POST", PATH, start), 401)
        foreign = {**shown, "Origin": "http://elsewhere.example"}
        assert_problem(served.request("POST", PATH, start, headers=foreign), 403)
        assert device.calls == []
        reply = served.request("POST", PATH, start, headers=shown)
        assert (reply.status, reply.json()) == (202, {"running": True, "seconds": 60, "nvtx": True})
        again = served.request("POST", PATH, start, headers=shown)
        assert assert_problem(again, 409)["type"] == "urn:pinhole:profile-running"
        assert 1 <= int(again.headers["retry-after"]) <= 60
        with StreamClient(served.port, f"/cameras/one/stream?token={token.replace(' ', '%20')}") as stream:
            parts = stream.parts()
            for _ in range(4):
                next(parts)
        named = [name.partition("#")[0].split() for name in (*nvtx.ranges, *nvtx.marks)]
        assert {tuple(name) for name in named} >= {
            ("one", stage) for stage in ("capture", "queue", "process", "encode", "deliver")
        }
    assert device.calls == ["start", "stop"]


def test_ranges_are_closed_where_they_were_opened_and_cost_nothing_when_off(nvtx: Recorder) -> None:
    ranges = Ranges()
    assert ranges.range("a", "process", 1) is ranges.range("b", "encode", 2), "something was made while it is off"
    assert ranges.switch_on()
    with contextlib.suppress(ZeroDivisionError), ranges.range("a", "process", 7):
        ranges.switch_off()
        raise ZeroDivisionError
    assert nvtx.ranges == ["a process #7"]
    assert not any(nvtx.open.values())
    ranges.mark("a", "queue", 8, 1500)
    ranges.switch_on()
    ranges.mark("a", "queue", 9, 1500)
    assert nvtx.marks == ["a queue #9 1.5 us"]


def test_a_camera_s_ranges_all_end_also_where_frames_fail(nvtx: Recorder) -> None:
    device = NullDevice()
    camera = Camera(CameraConfig("a", "testcard://?size=352x128&fps=500"), device)
    RANGES.switch_on()
    try:
        camera.start()
        until_processed(camera, 5)
        device.fail_submit = DeviceFailedError("cuLaunchKernel", 1, "cudaErrorInvalidValue", False, "try again")
        until_processed(camera, 20)
    finally:
        assert camera.stop(5)
        RANGES.switch_off()
    assert not any(nvtx.open.values())
    assert sum(name.startswith("a process #") for name in nvtx.ranges) >= 20


def test_where_cupy_has_no_nvtx_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "find_nvtx", lambda: None)
    ranges = Ranges()
    assert not ranges.switch_on()
    assert not ranges.on


def test_no_gpu_is_refused_by_the_device_itself() -> None:
    with pytest.raises(DeviceUnavailableError, match="not a GPU"):
        NullDevice().start_profiler()
