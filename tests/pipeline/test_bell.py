"""The bell, and a stage that spins on it."""

from __future__ import annotations

import threading
import time

import pytest

from kernels.device import NullDevice
from kernels.formats import GRAY8
from kernels.image import ImageSpec
from pipeline.bell import Bell
from pipeline.camera import Camera, CameraConfig
from pipeline.frame import Capture, Frame, FrameTimes
from pipeline.ring import Ring, RingClosed


def waiter(bell: Bell, times: int = 1) -> tuple[threading.Thread, list[float]]:
    woken: list[float] = []

    def run() -> None:
        for _ in range(times):
            bell.wait()
            woken.append(time.monotonic())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, woken


def test_it_waits_until_it_is_rung() -> None:
    bell = Bell()
    thread, woken = waiter(bell)
    time.sleep(0.05)
    assert not woken
    bell.ring()
    thread.join(5)
    assert woken


def test_a_ring_before_the_wait_is_kept_and_many_are_one() -> None:
    bell = Bell()
    for _ in range(3):
        bell.ring()
    thread, woken = waiter(bell, times=2)
    time.sleep(0.05)
    assert len(woken) == 1
    bell.hand_over()
    thread.join(5)
    assert len(woken) == 2


def test_other_threads_run_while_it_is_waited_for() -> None:
    """The waiter does not have the GIL: pure Python work beside it is not slowed down to a crawl."""
    bell = Bell()
    thread, _ = waiter(bell)
    assert sum(range(200_000)) == 19_999_900_000
    bell.ring()
    thread.join(5)
    assert not thread.is_alive()


def spin(ring: Ring, timeout_s: float) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def run() -> None:
        try:
            lease = ring.acquire_ready(timeout_s, spin=True)
        except RingClosed as error:
            found.append(error)
            return
        found.append(None if lease is None else lease.frame.sequence)
        if lease is not None:
            lease.abandon("test")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def small_ring() -> Ring:
    return Ring(NullDevice(), ImageSpec.make(GRAY8, 64, 48), slots=4)


def test_a_spinning_stage_gets_the_frame_that_is_published() -> None:
    ring = small_ring()
    thread, found = spin(ring, 30)
    time.sleep(0.02)
    lease = ring.acquire_write()
    assert lease is not None
    lease.publish(Frame(7, Capture(1, 1), FrameTimes()))
    thread.join(5)
    assert found == [7]
    assert ring.close(1)


def test_a_tick_lets_a_spinning_stage_see_its_time_out() -> None:
    ring = small_ring()
    thread, found = spin(ring, 0.05)
    while thread.is_alive():
        ring.tick()
        time.sleep(0.01)
    assert found == [None]
    assert ring.close(1)


def test_closing_the_ring_ends_a_spinning_wait() -> None:
    ring = small_ring()
    thread, found = spin(ring, 30)
    time.sleep(0.02)
    assert ring.close(1)
    thread.join(5)
    assert isinstance(found[0], RingClosed)


@pytest.mark.parametrize("fps", [5, 200])
def test_a_spinning_camera_runs_and_leaves_no_thread(fps: int) -> None:
    config = CameraConfig("spin", f"testcard://?size=352x128&fps={fps}&format=GRAY8", wait="spin")
    camera = Camera(config, NullDevice())
    camera.start()
    lease = camera.wait_newer(3, 10)
    assert lease is not None
    lease.release()
    assert camera.stop(5)
    assert not [thread.name for thread in threading.enumerate() if "spin" in thread.name]
