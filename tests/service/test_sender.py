"""A viewer's pictures on a connection whose buffer the test empties: which are written, when, and what is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import pytest

from pipeline.state import CameraState
from service.connection import Line
from service.live import Hub, Viewer
from service.mjpeg import PARTS
from service.picture import Variant
from service.sender import Sender
from service.websocket import MESSAGES
from tests.service.fakes import FakeCamera
from tests.service.test_live import STILL_S, hub_of, run, until


class FakeConnection:
    """Takes one write at a time while ``full`` is set: then nothing is drained until :meth:`drain`."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.writes: list[Sequence[bytes]] = []
        self.known = Line()
        self.pong: Callable[[bytes], None] = lambda data: None
        self.held = 0
        self.most_held = 0
        self.aborted = 0
        self._tell: Callable[[], None] = lambda: None

    @property
    def drained(self) -> bool:
        return self.held == 0

    def on_drained(self, callback: Callable[[], None]) -> None:
        self._tell = callback

    def write(self, chunks: Sequence[bytes]) -> None:
        self.writes.append(chunks)
        self.held += self.full
        self.most_held = max(self.most_held, self.held)

    def drain(self) -> None:
        self.held = 0
        self._tell()

    def on_pong(self, callback: Callable[[bytes], None]) -> None:
        self.pong = callback

    def line(self) -> Line:
        return self.known

    def abort(self) -> None:
        self.aborted += 1

    def end_with_connection(self) -> None: ...

    def finished(self) -> None: ...

    @property
    def sequences(self) -> list[int]:
        return [int(field_of(chunks, "X-Frame-Sequence")) for chunks in self.writes]


def field_of(chunks: Sequence[bytes], name: str) -> str:
    """A header field of a part, "" if it is not there."""
    lines = dict(line.split(": ", 1) for line in chunks[0].decode().split("\r\n") if line)
    return lines.get(name, "")


@pytest.fixture
def camera() -> FakeCamera:
    camera = FakeCamera(size=(320, 240))
    camera.state = CameraState.RUNNING
    return camera


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.live.TICK_S", 0.005)
    monkeypatch.setattr("service.feed.LOOK_S", 0.01)


def watching(hub: Hub, connection: FakeConnection, *, fps: float | None = None, deadline_s: float = 60) -> Viewer:
    viewer = hub.open(Variant.make("cam"), "mjpeg", fps=fps)
    Sender(viewer, connection, PARTS, deadline_s).start()
    return viewer


def test_each_frame_goes_out_as_it_comes_while_the_connection_takes_it(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            viewer = watching(hub, connection)
            for sequence in range(20):
                camera.show(sequence)
                await until(lambda: len(connection.writes) > sequence)  # noqa: B023
            assert connection.sequences == list(range(20))
            assert (viewer.sent, viewer.skipped, viewer.repeated) == (20, 0, 0)

    run(test)


def test_b04_one_picture_is_under_way_and_then_the_newest_follows(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection(full=True)
            viewer = watching(hub, connection)
            camera.show(0)
            await until(lambda: len(connection.writes) == 1)
            for round_ in range(1, 6):
                for sequence in range(round_ * 10, round_ * 10 + 9):
                    camera.show(sequence)
                    await asyncio.sleep(0)
                assert len(connection.writes) == round_, "nothing is written before the kernel has all of the last one"
                connection.drain()
                await until(lambda: len(connection.writes) == round_ + 1)  # noqa: B023
            assert connection.sequences == [0, 18, 28, 38, 48, 58]
            assert connection.most_held == 1
            assert viewer.sent == 5, "the last one is not with the kernel yet"
            assert viewer.skipped == 17 + 9 * 3

    run(test)


def test_b50_all_who_are_sent_a_frame_are_sent_the_same_bytes(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            connections = [FakeConnection() for _ in range(100)]
            for connection in connections:
                watching(hub, connection)
            camera.show(1)
            await until(lambda: all(connection.writes for connection in connections))
            assert len({id(connection.writes[0][1]) for connection in connections}) == 1, "one picture, not copies"
            heads = {connection.writes[0][0] for connection in connections}
            assert len(heads) < 20, "made once a millisecond at most"
            assert hub.statistics("cam").encoded == {"jpeg_cpu": 1}
            assert hub.statistics("cam").sent == 100

    run(test)


def test_b03_who_does_not_take_a_picture_in_time_is_cut_off_and_counted(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            stuck, good = FakeConnection(full=True), FakeConnection()
            watching(hub, stuck, deadline_s=0.05)
            watching(hub, good, deadline_s=0.05)
            camera.show(0)
            await until(lambda: stuck.aborted == 1)
            assert hub.statistics("cam").cut_off == 1
            camera.show(1)
            await until(lambda: good.sequences[-1] == 1)
            await asyncio.sleep(STILL_S)
            assert stuck.sequences == [0]
            assert (stuck.aborted, good.aborted) == (1, 0)

    run(test)


def test_b03_who_is_dropped_by_our_kernel_for_not_reading_is_counted_too(
    camera: FakeCamera, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.sender.USER_TIMEOUT_MS", 50)

    async def test() -> None:
        async with hub_of(camera) as hub:
            stuck, gone = (watching(hub, FakeConnection(full=True)) for _ in range(2))
            camera.show(0)
            await until(lambda: hub.statistics("cam").encoded == {"jpeg_cpu": 1})
            gone.release()
            assert hub.statistics("cam").cut_off == 0, "it went by itself"
            await asyncio.sleep(0.1)
            stuck.release()
            stuck.release()
            assert hub.statistics("cam").cut_off == 1

    run(test)


def test_b06_the_last_frame_is_repeated(camera: FakeCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.sender.REPEAT_S", 0.05)

    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            viewer = watching(hub, connection)
            camera.show(7)
            await until(lambda: len(connection.writes) == 4)
            assert connection.sequences == [7] * 4
            ages = [float(field_of(chunks, "X-Frame-Age-Ms")) for chunks in connection.writes]
            assert ages == sorted(ages)
            assert ages[3] > ages[0], "the age is that of the moment"
            assert (viewer.sent, viewer.repeated) == (1, 3)
            assert hub.statistics("cam").encoded == {"jpeg_cpu": 1}, "not encoded again"
            camera.show(8)
            await until(lambda: connection.sequences[-1] == 8)

    run(test)


def test_b104_an_old_picture_says_so_in_its_header_and_on_its_face(
    camera: FakeCamera, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.sender.REPEAT_S", 0.03)
    camera.config.stale_after_s = 0.1

    def lower_edge(chunks: Sequence[bytes]) -> Any:
        picture = cv2.imdecode(np.frombuffer(chunks[1], np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        return picture[-4, 4].astype(int)

    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            watching(hub, connection)
            camera.show(50)
            await until(lambda: len(connection.writes) > 1)
            assert field_of(connection.writes[0], "X-Pinhole-Stale") == ""
            fresh = lower_edge(connection.writes[0])
            assert np.ptp(fresh) < 8, "grey"
            await until(lambda: lower_edge(connection.writes[-1])[2] > 180)
            old = connection.writes[-1]
            assert field_of(old, "X-Pinhole-Stale") == "older than 0.1 s"
            assert field_of(old, "X-Frame-Sequence") == "50"
            assert int(field_of(old, "Content-Length")) == len(old[1])
            camera.show(51)
            await until(lambda: connection.sequences[-1] == 51)
            assert np.ptp(lower_edge(connection.writes[-1])) < 8
            assert field_of(connection.writes[-1], "X-Pinhole-Stale") == ""
            snapshot = hub.open(Variant.make("cam"), "snapshot")
            taken = await snapshot.next()
            assert taken is not None
            assert np.ptp(lower_edge([b"", taken.data])) < 8, "for machines: as it was taken"

    run(test)


def test_what_has_ended_says_so_in_its_header_and_stays_as_it_was(
    camera: FakeCamera, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.sender.REPEAT_S", 0.03)
    camera.config.stale_after_s = 0.05

    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            watching(hub, connection)
            camera.show(50)
            await until(lambda: len(connection.writes) == 1)
            camera.become(CameraState.ENDED)
            await until(lambda: field_of(connection.writes[-1], "X-Pinhole-Stale") == "ended")
            await asyncio.sleep(STILL_S)
            assert connection.writes[-1][1] == connection.writes[0][1]

    run(test)


def test_a_rate_bounds_what_is_sent_and_encoded(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            watching(hub, connection, fps=20)
            loop = asyncio.get_running_loop()
            camera.show(0)
            await until(lambda: bool(connection.writes))
            started = loop.time()
            for sequence in range(1, 200):
                camera.show(sequence)
                await asyncio.sleep(0.002)
            most = 20 * (loop.time() - started) + 2
            assert 2 <= len(connection.writes) <= most
            assert hub.statistics("cam").encoded["jpeg_cpu"] <= most + 1
            assert hub.statistics("cam").skipped == 0, "what was not wanted was not skipped"

    run(test)


def test_a_paused_viewer_costs_nothing_and_keeps_its_place(camera: FakeCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.live.LINGER_S", 0.02)

    async def test() -> None:
        async with hub_of(camera, max_viewers=1) as hub:
            connection = FakeConnection()
            viewer = watching(hub, connection)
            assert viewer.sender is not None
            camera.show(0)
            await until(lambda: len(connection.writes) == 1)
            viewer.sender.stop()
            hub.park(viewer)
            await until(lambda: hub.statistics("cam").variants == 0)
            assert camera.subscribers == 0, "the camera is let go"
            for sequence in range(1, 10):
                camera.show(sequence)
                await asyncio.sleep(0.005)
            assert hub.statistics("cam").encoded == {"jpeg_cpu": 1}
            assert hub.statistics("cam").connections[0].paused
            assert hub.statistics("cam").viewers == {"mjpeg": 1}
            hub.move(viewer, Variant.make("cam", width=32))
            viewer.sender.start()
            await until(lambda: connection.sequences == [0, 9])
            assert field_of(connection.writes[-1], "X-Frame-Width") == "32"

    run(test)


def test_rates_and_sizes_of_each_viewer_are_known(camera: FakeCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.live.RATE_S", 0.2)

    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            watching(hub, connection)
            loop = asyncio.get_running_loop()
            until_s = loop.time() + 0.5
            while loop.time() < until_s:
                camera.show()
                await asyncio.sleep(0.01)
            [shown] = hub.statistics("cam").connections
            size = len(connection.writes[0][1])
            assert shown.sent_bytes == sum(len(chunks[1]) for chunks in connection.writes)
            assert hub.statistics("cam").sent_bytes == shown.sent_bytes
            assert shown.frames_per_s is not None
            assert shown.bits_per_s is not None
            assert 5 < shown.frames_per_s <= 110
            assert shown.bits_per_s == pytest.approx(8 * size * shown.frames_per_s, rel=0.2)
            assert shown.age_ns is not None
            assert shown.age_ns > 0

    run(test)


def test_the_stop_of_a_viewer_ends_its_pictures_at_once(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            viewer = watching(hub, connection)
            camera.show(0)
            await until(lambda: len(connection.writes) == 1)
            viewer.finish()
            for sequence in range(1, 5):
                camera.show(sequence)
                await asyncio.sleep(0.01)
            assert connection.sequences == [0]

    run(test)


def pong(connection: FakeConnection) -> None:
    """The client answers the oldest of the pings."""
    ping = connection.writes[0][-1]
    assert ping[:2] == b"\x89\x08"
    connection.pong(ping[2:])


def header_of(chunks: Sequence[bytes]) -> dict[str, Any]:
    """The header of a message; what stands before it has no brace."""
    header: dict[str, Any] = json.loads(b"{" + chunks[0].partition(b"{")[2])
    return header


def watching_by_messages(hub: Hub, connection: FakeConnection, deadline_s: float = 60) -> Viewer:
    viewer = hub.open(Variant.make("cam"), "websocket")
    Sender(viewer, connection, MESSAGES, deadline_s).start()
    return viewer


@pytest.mark.parametrize(("round_trip_s", "most"), [(0.0, 2), (0.1, 5)])
def test_b04_what_a_client_has_not_read_is_bounded_whatever_kernels_and_proxies_hold(
    camera: FakeCamera, round_trip_s: float, most: int
) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()  # everything is gone at once, into somebody's buffers
            connection.known = Line(round_trip_s)
            watching_by_messages(hub, connection)
            await asyncio.sleep(0.05)
            for sequence in range(20):
                camera.show(sequence)
                await asyncio.sleep(0.01)
            assert len(connection.writes) == most
            assert hub.statistics("cam").encoded["jpeg_cpu"] == most, "what cannot be sent is not encoded"
            pong(connection)
            await until(lambda: len(connection.writes) == most + 1)
            assert header_of(connection.writes[-1])["sequence"] == 19
            for sequence in range(20, 24):
                camera.show(sequence)
                await asyncio.sleep(0.01)
            assert len(connection.writes) == most + 1

    run(test)


def test_b03_who_does_not_answer_in_time_is_cut_off(camera: FakeCamera) -> None:
    async def test() -> None:
        async with hub_of(camera) as hub:
            deaf, good = FakeConnection(), FakeConnection()
            watching_by_messages(hub, deaf, 0.1)
            watching_by_messages(hub, good, 0.1)
            while not deaf.aborted:
                camera.show()
                await asyncio.sleep(0.005)
                for _ in range(len(good.writes)):
                    pong(good)
            assert hub.statistics("cam").cut_off == 1
            assert not good.aborted
            assert len(deaf.writes) == 2

    run(test)


def test_b04_who_is_behind_by_what_its_kernel_holds_gets_the_next_when_it_has_read(
    camera: FakeCamera, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.sender.BEHIND_S", 0.2)

    async def test() -> None:
        async with hub_of(camera) as hub:
            connection = FakeConnection()
            connection.known = Line(window_bytes=300_000)
            watching(hub, connection)
            camera.show(0)
            await until(lambda: len(connection.writes) == 1)
            size = len(connection.writes[0][1])
            connection.known = Line(window_bytes=300_000 - size)  # one that reads each at once may show this
            camera.show(1)
            await until(lambda: connection.sequences == [0, 1])
            connection.known = Line(window_bytes=100_000)
            for sequence in range(2, 6):
                camera.show(sequence)
                await asyncio.sleep(0.02)
            assert connection.sequences == [0, 1]
            assert size < 100_000
            connection.known = Line(window_bytes=290_000)
            await until(lambda: connection.sequences == [0, 1, 5])
            connection.known = Line(window_bytes=100_000)  # and for good: its kernel has less memory for it now
            camera.show(6)
            await until(lambda: connection.sequences == [0, 1, 5, 6])
            camera.show(7)
            await until(lambda: connection.sequences == [0, 1, 5, 6, 7])
            connection.known = Line(window_bytes=None)
            camera.show(8)
            await until(lambda: connection.sequences[-1] == 8)

    run(test)
