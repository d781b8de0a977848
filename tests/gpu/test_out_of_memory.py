"""Device and pinned memory that is really used up: what is asked for is refused with the numbers, what runs goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from kernels.chain import make_chain, parse_chain
from kernels.device import CudaDevice
from kernels.errors import OutOfMemoryError
from pipeline.camera import Camera, CameraConfig, CameraState

pytestmark = pytest.mark.gpu


@contextmanager
def hardly_any_left(left: int = 64 << 20) -> Iterator[None]:
    """Take the device's memory, but for about ``left`` bytes."""
    from cupy.cuda import runtime

    taken, piece = [], 8 << 30
    try:
        while piece >= left // 2:
            if runtime.memGetInfo()[0] < piece + left:
                piece //= 2
                continue
            try:
                taken.append(runtime.malloc(piece))
            except runtime.CUDARuntimeError:
                piece //= 2
        yield
    finally:
        for pointer in taken:
            runtime.free(pointer)


def newer(camera: Camera) -> None:
    lease = camera.wait_newer(camera.statistics().sequence or 0, 10)
    assert lease is not None, f"{camera.state}: {camera.cause}"
    lease.release()


@pytest.mark.timeout(120)
def test_b75_a_chain_that_the_device_has_no_memory_for_is_refused_and_the_old_one_runs_on() -> None:
    device = CudaDevice()
    camera = Camera(CameraConfig("card", "testcard://?size=4096x4096&fps=10", parse_chain("invert")), device)
    camera.start()
    newer(camera)
    held = device.ledger.held("device")
    try:
        with hardly_any_left():
            with pytest.raises(OutOfMemoryError, match="device memory") as caught:
                camera.set_chain(make_chain([{"op": "motion_heatmap"}, {"op": "background_subtraction"}]))
            assert caught.value.free_bytes is not None
            assert caught.value.asked_bytes > caught.value.free_bytes
            assert "use fewer cameras" in str(caught.value)
            assert device.ledger.held("device") == held
            newer(camera)
            assert str(camera.chain) == "invert()"
        camera.set_chain(make_chain([{"op": "motion_heatmap"}]))
        newer(camera)
    finally:
        assert camera.stop(10)
    assert device.ledger.held("device") == 0


@pytest.mark.timeout(120)
def test_fifty_restarts_leave_memory_as_it_was() -> None:
    device = CudaDevice()
    process = psutil.Process()
    used = []
    for number in range(60):
        camera = Camera(CameraConfig("card", "testcard://?size=1280x720&fps=200", parse_chain("sobel")), device)
        camera.start()
        newer(camera)
        assert camera.stop(5)
        assert camera.state is CameraState.STOPPED
        assert device.ledger.held("pinned") == device.ledger.held("device") == 0
        if number >= 10:  # what libraries and the driver keep for good is there by then
            used.append(process.memory_info().rss)
    assert max(used) - used[0] < 16 << 20, [f"{one >> 20} MiB" for one in used[::10]]
