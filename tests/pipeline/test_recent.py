"""The last few of what a thread noted."""

from __future__ import annotations

import itertools
import threading
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from kernels.device import NullDevice
from pipeline.camera import Camera, CameraConfig
from pipeline.counters import MOST_TRACED
from pipeline.recent import Recent
from tests.pipeline.fakes import until_processed


@given(st.integers(1, 9), st.lists(st.integers()), st.integers(0, 12))
def test_it_is_a_bounded_queue(size: int, items: list[int], count: int) -> None:
    recent: Recent[int] = Recent(size)
    oracle: deque[int] = deque(maxlen=size)
    for item in items:
        recent.add(item)
        oracle.append(item)
        assert recent.newest() == list(oracle)
    assert recent.newest(count) == list(oracle)[max(0, len(oracle) - count) :]


def test_a_reader_beside_the_writer_gets_what_was_newest_in_order() -> None:
    recent: Recent[int] = Recent(16)
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            recent.add(number)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2000):
            seen = recent.newest()
            # One that came meanwhile may have taken the oldest ones' places.
            late = [a for a, b in itertools.pairwise(seen) if b != a + 1]
            assert len(late) <= 1, seen
            assert len(seen) <= 16
    finally:
        over.set()
        writer.join()


def test_a_camera_remembers_its_last_frames_and_no_more() -> None:
    camera = Camera(CameraConfig("a", "testcard://?size=352x128&fps=1000"), NullDevice())
    camera.start()
    try:
        until_processed(camera, MOST_TRACED + 20)
    finally:
        assert camera.stop(5)
    frames = camera.recent_frames(10_000)
    assert len(frames) == MOST_TRACED
    assert camera.recent_frames(3) == frames[-3:]
    numbers = [frame.sequence for frame in frames]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == camera.statistics().sequence
    for frame in frames:
        times = frame.times
        assert frame.capture.captured_ns <= times.published_ns <= times.picked_ns
        assert times.picked_ns <= times.submitted_ns <= times.done_ns
