"""The hub against a scripted camera: what is encoded, who gets it, and what is given back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kernels.errors import UnknownNameError
from pipeline.encoders.jpeg_cpu import JpegCpu
from pipeline.state import CameraState
from service.live import Hub, HubClosedError, TooManyVariantsError, TooManyViewersError
from service.picture import Picture, Variant, View
from tests.service.fakes import FakeCamera

STILL_S = 0.15  # long enough for anything that should not happen to happen


@pytest.fixture
def camera() -> FakeCamera:
    camera = FakeCamera()
    camera.state = CameraState.RUNNING
    return camera


@asynccontextmanager
async def hub_of(*cameras: FakeCamera, **limits: int) -> AsyncIterator[Hub]:
    hub = Hub(lambda: {camera.name: camera for camera in cameras}, **limits)
    try:
        yield hub
    finally:
        for viewer in list(hub._viewers):
            viewer.release()
        await hub.stop()
        for camera in cameras:
            assert camera.leases_out == 0, "a lease was not given back"
            assert camera.subscribers == 0, "a subscription was left"


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def variant(camera: str = "cam", **options: Any) -> Variant:
    return Variant.make(camera, **options)


async def got(picture: Picture | None) -> Picture:
    assert picture is not None
    return picture


async def until(condition: Callable[[], bool], timeout_s: float = 2.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.005)


def test_nothing_is_encoded_when_nobody_looks(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            camera.show()
            viewer = hub.open(variant(), "mjpeg")
            await got(await viewer.next())
            for _ in range(10):  # it looks no further: it is not waiting
                camera.show()
                await asyncio.sleep(0.01)
            assert hub.statistics("cam").encoded == {"jpeg_cpu": 1}
            viewer.release()
            for _ in range(10):
                camera.show()
                await asyncio.sleep(0.01)
            assert hub.statistics("cam").encoded == {"jpeg_cpu": 1}

    run(test)


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_b50_each_frame_is_encoded_once_for_any_number_of_viewers(camera: FakeCamera, count: int) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            viewers = [hub.open(variant(), "mjpeg") for _ in range(count)]
            for sequence in range(12):
                waiting = [asyncio.ensure_future(viewer.next()) for viewer in viewers]
                await asyncio.sleep(0)
                camera.show(sequence)
                pictures = [await got(picture) for picture in await asyncio.gather(*waiting)]
                assert {p.sequence for p in pictures} == {sequence}
                assert len({id(p.data) for p in pictures}) == 1, "one picture shared, not copies"
            assert hub.statistics("cam").encoded == {"jpeg_cpu": 12}
            assert camera.subscribers == 1

    run(test)


def test_b50_each_rendition_is_encoded_once_and_apart_from_the_others(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            others: list[dict[str, Any]] = [{"quality": 30}, {"width": 32}, {"view": View.SOURCE}, {"format": "png"}]
            variants = [variant(), *(variant(**options) for options in others)]
            viewers = [hub.open(v, "mjpeg") for v in variants * 4]
            camera.show(7)
            pictures = [await got(p) for p in await asyncio.gather(*(viewer.next() for viewer in viewers))]
            assert sum(hub.statistics("cam").encoded.values()) == len(variants)
            assert [(p.width, p.height) for p in pictures[:5]] == [(64, 48), (64, 48), (32, 24), (64, 48), (64, 48)]
            assert pictures[4].media_type == "image/png"
            assert pictures[0].data != pictures[3].data

    run(test)


def test_b04_a_slow_viewer_gets_the_newest_frame_and_the_skipped_are_counted(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            viewer = hub.open(variant(), "mjpeg")
            for first in range(0, 60, 6):
                for sequence in range(first, first + 6):
                    camera.show(sequence)
                    await asyncio.sleep(0)
                picture = await got(await viewer.next())
                assert picture.sequence == first + 5
                viewer.delivered(picture)
            statistics = hub.statistics("cam")
            assert (statistics.sent, statistics.skipped) == (10, 45)
            assert statistics.connections[0].skipped == 45

    run(test)


def test_b04_one_slow_viewer_holds_nobody_up(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            slow, fast = hub.open(variant(), "mjpeg"), hub.open(variant(), "mjpeg")
            camera.show(0)
            await slow.next()
            for sequence in range(30):
                camera.show(sequence)
                assert (await got(await fast.next())).sequence == sequence

    run(test)


def test_a_viewer_that_comes_while_a_newer_frame_is_known_never_gets_the_older_one(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            first, second = hub.open(variant(), "mjpeg"), hub.open(variant(), "mjpeg")
            camera.show(1)
            await first.next()
            camera.show(2)
            await until(lambda: second.feed.news.is_set())
            assert (await got(await second.next())).sequence == 2

    run(test)


def test_a_frame_is_not_given_twice_and_a_still_one_can_be_repeated(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            viewer = hub.open(variant(), "mjpeg")
            camera.show(5)
            picture = await got(await viewer.next())
            assert await viewer.next(STILL_S) is None
            viewer.delivered(picture)
            viewer.delivered(picture)
            assert (viewer.sent, viewer.repeated, viewer.skipped) == (1, 1, 0)

    run(test)


def test_snapshots_of_one_frame_are_one_encoding(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            camera.show(3)
            for _ in range(5):
                viewer = hub.open(variant(), "snapshot")
                assert (await got(await viewer.next())).sequence == 3
                viewer.release()
            assert hub.statistics("cam").encoded == {"jpeg_cpu": 1}
            assert hub.statistics("cam").viewers == {}

    run(test)


def test_a_rendition_that_nobody_looks_at_is_forgotten(camera: FakeCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.live.LINGER_S", 0.05)

    async def test() -> None:
        async with hub_of(camera) as hub:
            camera.show()
            one, other = hub.open(variant(), "snapshot"), hub.open(variant(quality=5), "mjpeg")
            one.release()
            await until(lambda: hub.statistics("cam").variants == 1)
            assert camera.subscribers == 1
            other.release()
            other.release()
            await until(lambda: hub.statistics("cam").variants == 0)
            assert camera.subscribers == 0

    run(test)


def test_limits_are_clear_and_places_come_back(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera, max_viewers=2, max_variants=3) as hub:
            viewers = [hub.open(variant(quality=q), "mjpeg") for q in (10, 20)]
            with pytest.raises(TooManyViewersError, match="all 2 places"):
                hub.open(variant(quality=10), "mjpeg")
            hub.open(variant(quality=30), "snapshot")
            with pytest.raises(TooManyVariantsError, match="3 different renditions"):
                hub.open(variant(quality=40), "snapshot")
            viewers[0].release()
            hub.open(variant(quality=40), "mjpeg").release()
            assert hub.statistics("cam").viewers == {"mjpeg": 1, "snapshot": 1}

    run(test)


def test_an_unknown_camera_names_the_known_ones(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            with pytest.raises(UnknownNameError, match="did you mean 'cam'"):
                hub.open(variant("cma"), "mjpeg")

    run(test)


def test_b49_encoding_never_blocks_the_loop(camera: FakeCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = JpegCpu.encode

    def slow(self: JpegCpu, *args: Any) -> bytes:
        assert threading.current_thread() is not threading.main_thread()
        time.sleep(0.5)
        return encode(self, *args)

    monkeypatch.setattr(JpegCpu, "encode", slow)

    async def test() -> None:
        async with hub_of(camera) as hub:
            camera.show(1)
            waiting = asyncio.ensure_future(hub.open(variant(), "mjpeg").next())
            longest, ticks = 0.0, 0
            while not waiting.done():
                before = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - before)
                ticks += 1
            assert ticks > 5
            assert longest < 0.15, "the loop waited for the encoder"

    run(test)


def test_a_fault_of_the_encoder_gives_the_lease_back_and_the_next_frame_is_tried(
    camera: FakeCamera, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encode, faults, broke = JpegCpu.encode, 0, True

    def broken(self: JpegCpu, *args: Any) -> bytes:
        nonlocal faults
        if broke:
            faults += 1
            raise RuntimeError("out of ink")
        return encode(self, *args)

    monkeypatch.setattr(JpegCpu, "encode", broken)

    async def test() -> None:
        nonlocal broke
        async with hub_of(camera) as hub:
            viewer = hub.open(variant(), "mjpeg")
            for sequence in range(3):
                camera.show(sequence)
                assert await viewer.next(STILL_S) is None
                assert viewer.feed.error == "RuntimeError: out of ink"
                assert camera.leases_out == 0
            broke = False
            camera.show(3)
            assert (await got(await viewer.next())).sequence == 3
            assert viewer.feed.error == ""
            assert hub.statistics("cam").encode_errors == faults >= 3

    run(test)
    assert caplog.text.count("out of ink") == 1, "logged once per cause"


@pytest.mark.parametrize("leave", ["release", "cancel", "stop"])
def test_the_lease_comes_back_when_the_viewer_leaves_in_the_middle(
    camera: FakeCamera, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    encode, inside, go = JpegCpu.encode, threading.Event(), threading.Event()

    def held(self: JpegCpu, *args: Any) -> bytes:
        inside.set()
        assert go.wait(5)
        return encode(self, *args)

    monkeypatch.setattr(JpegCpu, "encode", held)

    async def test() -> None:
        async with hub_of(camera) as hub:
            camera.show(1)
            viewer = hub.open(variant(), "mjpeg")
            waiting = asyncio.ensure_future(viewer.next(5))
            await until(inside.is_set)
            assert camera.leases_out == 1
            if leave == "release":
                viewer.release()
                assert await waiting is None
            elif leave == "cancel":
                waiting.cancel()
                viewer.release()
            else:
                waiting.add_done_callback(lambda _: viewer.release())
                asyncio.get_running_loop().call_later(0.1, go.set)
                assert await hub.stop()
                assert await waiting is None
            go.set()
            await until(lambda: camera.leases_out == 0)

    run(test)


def test_stop_ends_waiting_viewers_at_once_and_takes_no_more(camera: FakeCamera) -> None:
    async def test() -> None:
        hub = Hub(lambda: {"cam": camera})
        viewers = [hub.open(variant(quality=q), "mjpeg") for q in range(1, 21)]

        async def watch(viewer: Any) -> None:
            try:
                while not viewer.stopping:
                    await viewer.next()
            finally:
                viewer.release()

        tasks = [asyncio.ensure_future(watch(viewer)) for viewer in viewers]
        camera.show()
        await asyncio.sleep(0.02)
        before = time.monotonic()
        assert await hub.stop()
        assert time.monotonic() - before < 0.5
        assert all(task.done() for task in tasks)
        with pytest.raises(HubClosedError):
            hub.open(variant(), "mjpeg")
        assert await hub.stop(), "again, and nothing happens"
        assert camera.subscribers == 0
        camera.notify()

    run(test)


def test_stop_does_not_wait_for_ever_for_an_encoder(camera: FakeCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go = threading.Event(), threading.Event()

    def stuck(self: JpegCpu, *args: Any) -> bytes:
        inside.set()
        go.wait(5)
        return b""

    monkeypatch.setattr(JpegCpu, "encode", stuck)

    async def test() -> None:
        hub = Hub(lambda: {"cam": camera})
        camera.show()
        waiting = asyncio.ensure_future(hub.open(variant(), "mjpeg").next(5))
        await until(inside.is_set)
        before = time.monotonic()
        assert not await hub.stop(0.3)
        assert time.monotonic() - before < 1.0
        assert await waiting is None
        go.set()

    run(test)


def test_a_camera_that_took_a_removed_ones_name_is_another_camera(camera: FakeCamera) -> None:
    async def test() -> None:
        cameras = {"cam": camera}
        hub = Hub(lambda: cameras)
        camera.show(1)
        old = hub.open(variant(), "mjpeg")
        await old.next()
        cameras["cam"] = replacement = FakeCamera()
        replacement.state = CameraState.RUNNING
        replacement.show(50)
        new = hub.open(variant(), "mjpeg")
        assert old.stopping
        assert (await got(await new.next())).sequence == 50
        old.release()
        await hub.stop()
        assert camera.subscribers == replacement.subscribers == 0
        assert camera.leases_out == replacement.leases_out == 0

    run(test)


def test_wake_ups_from_other_threads_are_coalesced(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            viewer = hub.open(variant(), "mjpeg")
            calls = 0
            loop = asyncio.get_running_loop()
            real = loop.call_soon_threadsafe

            def counted(*args: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                return real(*args, **options)

            loop.call_soon_threadsafe = counted  # type: ignore[method-assign,assignment]

            def burst() -> None:
                for _ in range(500):
                    camera.show()

            thread = threading.Thread(target=burst)
            thread.start()
            thread.join()  # the loop is held up meanwhile: all of these are one wake-up
            assert calls == 1
            assert (await got(await viewer.next())).sequence == 499

    run(test)
