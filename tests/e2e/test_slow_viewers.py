"""Viewers that crash, stop reading, or read slowly: nobody else notices, nothing grows, nothing is late."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import cv2
import numpy as np
import psutil
import pytest

from service.settings import Limits, Settings
from tests.helpers.inprocess import serving
from tests.helpers.mjpeg import Part, StreamClient
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import SMALL_CARD, Server, serve
from tests.helpers.websocket import messages_read, reset, silent_viewer


def crash(port: int, count: int, done: threading.Event) -> None:
    """Viewers of each kind that come and go at once, some in the middle of a picture."""
    try:
        for number in range(count):
            if number % 2:
                viewer = silent_viewer(port, "/cameras/big/ws?width=320")
                if number % 4 == 1:
                    viewer.recv(1000)
                reset(viewer)
            else:
                client = StreamClient(port, "/stream?width=320")
                if number % 4 == 2:
                    client.head()
                client.reset()
    finally:
        done.set()


@pytest.fixture(scope="module")
def large() -> Iterator[Server]:
    """A 1080p card whose pictures are about as large as a camera's: nothing of one fits in small buffers."""
    with serve("--camera", "big=testcard://?size=1920x1080&fps=30&format=BGR8") as server:
        yield server


def test_b01_five_hundred_viewers_that_crash_leave_nothing_and_another_one_notices_nothing(large: Server) -> None:
    process = psutil.Process(large.process.pid)
    for _ in range(10):
        StreamClient(large.port, "/stream").reset()
        reset(silent_viewer(large.port, "/cameras/big/ws"))
    large.until(lambda: large.metric("pinhole_viewers") == 0)
    time.sleep(0.3)
    threads, descriptors = process.num_threads(), process.num_fds()
    done = threading.Event()
    crashing = threading.Thread(target=crash, args=(large.port, 500, done))
    with StreamClient(large.port, "/stream?width=320") as client:
        parts = client.parts()
        next(parts)
        crashing.start()
        seen = [int(next(parts).headers["x-frame-sequence"]) for _ in range(60)]
        while not done.is_set():
            seen.append(int(next(parts).headers["x-frame-sequence"]))
        crashing.join()
        large.until(lambda: large.metric("pinhole_viewers") == 1)
    # In periods of the camera, by its own count: whatever else the machine does, the clock has no part in it.
    assert np.percentile(np.diff(seen), 99) <= 2, np.diff(seen)
    assert large.until(lambda: large.metric("pinhole_viewers") == 0) < 2.0
    assert process.num_threads() <= threads + 2
    large.until(lambda: process.num_fds() <= descriptors + 1)
    time.sleep(0.5)  # a picture that was being encoded when the last one went is still finished
    before = large.metric("pinhole_frames_encoded_total")
    time.sleep(0.4)
    assert large.metric("pinhole_frames_encoded_total") == before, "nobody looks, nothing is encoded"


def test_b03_viewers_that_never_read_cost_no_memory_and_are_cut_off(large: Server) -> None:
    process = psutil.Process(large.process.pid)
    with StreamClient(large.port, "/stream") as client:
        parts = client.parts()
        next(parts)
        rss = process.memory_info().rss
        stuck = [StreamClient(large.port, "/stream?quality=95", rcvbuf=2048).socket for _ in range(5)]
        stuck += [silent_viewer(large.port, "/cameras/big/ws?quality=95", rcvbuf=2048) for _ in range(5)]
        try:
            large.until(lambda: large.metric("pinhole_viewers") == 11)
            seen = [int(part.headers["x-frame-sequence"]) for part in itertools.islice(parts, 40)]
            assert np.median(np.diff(seen)) <= 2, "the one that reads gets its frames"
            largest = process.memory_info().rss
            frame = 1920 * 1080 * 3
            assert largest - rss < 6 * frame, f"grew by {(largest - rss) / 1e6:.1f} MB"
            large.until(lambda: large.metric("pinhole_viewers") == 1, 15)
        finally:
            for viewer in stuck:
                viewer.close()
        next(parts)


def test_b03_one_that_reads_too_little_is_cut_off_by_the_deadline_and_counted() -> None:
    settings = Settings(limits=Limits(send_deadline_s=0.5))
    card = "testcard://?size=1280x720&fps=30&format=BGR8"
    with serving({"cam": card}, settings=settings) as served:
        with (
            StreamClient(served.port, "/stream?quality=100", rcvbuf=2048) as trickle,
            StreamClient(served.port, "/stream") as good,
        ):
            parts = good.parts()
            served.until(lambda: served.metric("pinhole_viewers") == 2)
            started = time.monotonic()
            while served.metric("pinhole_viewers_cut_off_total") == 0:
                assert time.monotonic() - started < 8
                trickle.socket.recv(16)  # a few bytes now and then keep the kernel's own time-out away
                next(parts)
            served.until(lambda: served.metric("pinhole_viewers") == 1)
            next(parts)
        served.until(lambda: served.metric("pinhole_viewers") == 0)


def test_b04_a_slow_reader_is_never_late(large: Server) -> None:
    """It reads a frame each 200 ms of a camera of 30 fps; each must be of the last moments, not of a queue."""
    lags, ages = [], []
    with StreamClient(large.port, "/stream?quality=95", chunks=lambda: 16384, rcvbuf=16384) as client:
        parts = client.parts()
        for _ in range(12):
            time.sleep(0.2)
            part = next(parts)
            newest = large.get("/api/v1/cameras/big").json()["sequence"]
            lags.append(newest - int(part.headers["x-frame-sequence"]))
            ages.append(float(part.headers["x-frame-age-ms"]))
    late = lags[2:]
    # One frame is on its way while it sleeps (6 periods), and one more may be in the buffers between.
    assert max(late) <= 6 + 2 + 6, lags
    assert np.polyfit(range(len(late)), late, 1)[0] < 0.5, f"the lag grows: {lags}"
    connections = large.get("/api/v1/cameras/big").json()["viewers"]
    assert connections["skipped"] > 0


@pytest.mark.parametrize("kind", ["mjpeg", "websocket"])
def test_b04_who_reads_a_third_of_the_rate_is_not_late(large: Server, kind: str) -> None:
    """In frames of the camera, counted by a viewer that gets them all: 350 ms are ten of 30 a second.

    What kernels alone would hold for it makes that twelve (MJPEG) and forty. Milliseconds are the benchmark's.
    """
    with contextlib.ExitStack() as stack:
        quick = stack.enter_context(StreamClient(large.port, "/stream?width=320")).parts()
        if kind == "mjpeg":
            parts = stack.enter_context(StreamClient(large.port, "/stream?quality=95")).parts()
            slow = (int(part.headers["x-frame-sequence"]) for part in parts)
        else:
            viewer = stack.enter_context(silent_viewer(large.port, "/cameras/big/ws?quality=95"))
            slow = (message.header["sequence"] for message in messages_read(viewer))
        behind = []
        for _ in range(25):
            newest = [int(next(quick).headers["x-frame-sequence"]) for _ in range(3)][-1]
            behind.append(newest - next(slow))
    # A machine that is busy with something else holds both up, and not at once.
    assert np.median(behind[3:]) <= 10, behind
    assert max(behind) <= 40, behind


def code_of(part: Part) -> int:
    """The number that the picture itself shows."""
    picture = cv2.imdecode(np.frombuffer(part.body, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    top, bottom = read_codes(picture)
    assert top == bottom
    assert top is not None
    return top


def test_b50_five_viewers_each_get_the_whole_rate() -> None:
    with serve("--camera", f"cam={SMALL_CARD}") as server:
        parts: dict[int, list[Part]] = {number: [] for number in range(5)}

        def watch(number: int) -> None:
            with StreamClient(server.port, "/stream") as client:
                deadline = time.monotonic() + 3
                for part in client.parts():
                    parts[number].append(part)  # read the codes later: five decoders would slow the readers down
                    if time.monotonic() > deadline:
                        return

        threads = [threading.Thread(target=watch, args=(number,)) for number in parts]
        before = server.metric("pinhole_frames_captured_total")
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        took_s = time.monotonic() - started
        captured = server.metric("pinhole_frames_captured_total") - before
        for sequences in ([code_of(part) for part in seen] for seen in parts.values()):
            assert len(set(sequences)) == len(sequences), "distinct frames"
            assert sequences == sorted(sequences)
            assert len(sequences) > 0.6 * captured, (len(sequences), captured)
        assert captured / took_s > 25, "the capture rate is unchanged"
        encoded = server.metric("pinhole_frames_encoded_total")
        assert encoded <= captured + 2


def test_more_viewers_than_there_are_places_are_told_when_to_come_back() -> None:
    with serve("--camera", f"cam={SMALL_CARD}", "--max-viewers", "3") as server:
        viewers = [StreamClient(server.port, "/stream") for _ in range(3)]
        try:
            server.until(lambda: server.metric("pinhole_viewers") == 3)
            refused = server.get("/stream")
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) > 0
            assert "3 places" in refused.json()["detail"]
            assert server.get("/snapshot").status == 200
            assert server.get("/health/ready").status == 200
            viewers[0].reset()
            server.until(lambda: server.metric("pinhole_viewers") == 2)
            viewers[0] = StreamClient(server.port, "/stream")
            assert next(viewers[0].parts()).body
        finally:
            for viewer in viewers:
                viewer.socket.close()


def test_more_renditions_than_are_allowed_are_refused() -> None:
    settings = Settings(limits=Limits(max_variants=2))
    with serving({"cam": SMALL_CARD}, settings=settings) as served:
        viewers = [StreamClient(served.port, f"/stream?quality={quality}") for quality in (10, 20)]
        try:
            served.until(lambda: served.metric("pinhole_viewers") == 2)
            for path in ("/stream?quality=30", "/snapshot?quality=30"):
                assert served.get(path).status == 429
            assert served.get("/snapshot?quality=20").status == 200
        finally:
            for viewer in viewers:
                viewer.socket.close()
