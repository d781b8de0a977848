"""A whole camera over a driver in Python: results of its slots, and what happens when it is unplugged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kernels.chain import parse_chain
from kernels.device import CudaDevice, Device, HostDevice
from kernels.formats import NV12
from kernels.image import ImageSpec, ImageView, Pixels
from kernels.plan import chain_params, make_plan
from kernels.run_cpu import CpuExecutor
from pipeline.camera import Camera, CameraConfig, CameraState
from pipeline.sources.base import Source
from tests.pipeline.fakes import until, until_processed, until_state
from tests.pipeline.v4l2.fake_driver import FakeCamera, make_nodes
from tests.pipeline.v4l2.test_source import Bench

CHAIN = "gain_offset(gain=1.1, offset=5) | flip(direction='vertical')"
WIDTH, HEIGHT = 66, 48


@contextmanager
def running(bench: Bench, device: Device, query: str, chain: str = "") -> Iterator[Camera]:
    """A camera of ``bench``; every slot is back at the end."""

    def make(uri: str) -> Source:
        return bench.source(query)

    config = CameraConfig("cam", f"v4l2://{bench.dev}/video0?{query}", parse_chain(chain), slots=4)
    camera = Camera(config, device, make)
    camera.start()
    try:
        yield camera
    finally:
        assert camera.stop(5)
        assert bench.camera.opened == 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "dev")
    made.camera.pace_s = 0.005
    return made


def expected(frame: bytes, stride: int) -> Pixels:
    """The chain's result for an NV12 frame as it lies in a buffer, from a packed copy of it."""
    rows = np.frombuffer(frame, np.uint8).reshape(HEIGHT * 3 // 2, stride)[:, :WIDTH]
    spec = ImageSpec.make(NV12, WIDTH, HEIGHT)
    plan = make_plan(parse_chain(CHAIN), spec)
    result = ImageView(plan.result, np.zeros(plan.result.nbytes, np.uint8))
    executor = CpuExecutor(plan)
    executor.submit(ImageView(spec, np.ascontiguousarray(rows).ravel()), result, chain_params(parse_chain(CHAIN)))
    executor.close()
    return result.packed()


def results_are_those_of_the_picture(bench: Bench, device: Device) -> None:
    bench.camera.modes = {"NV12": {(WIDTH, HEIGHT): (30,)}}
    bench.camera.code, bench.camera.size = "NV12", (WIDTH, HEIGHT)
    for alignment, query in ((1, ""), (100, ""), (128, ""), (100, "io=mmap")):
        bench.camera.row_alignment = alignment
        data = np.random.default_rng(alignment).integers(0, 256, 200 * HEIGHT * 3 // 2, np.uint8).tobytes()
        bench.camera.fill = lambda number, nbytes, data=data: data[:nbytes]  # type: ignore[misc]
        with running(bench, device, query, CHAIN) as camera:
            until_processed(camera, 3)
            lease = camera.latest()
            assert lease is not None
            with lease:
                shown = lease.result.packed()
            stride = bench.camera.stride
            wanted = expected(data[: stride * HEIGHT * 3 // 2], stride)
            assert np.abs(shown.astype(int) - wanted.astype(int)).max() <= (1 if device.backend == "cuda" else 0)
            now = camera.statistics()
            assert now.copied_bytes["capture"] == (now.captured * WIDTH * HEIGHT * 3 // 2 if query else 0)
            assert now.ring is not None
            assert now.ring.slots == (4 if query else 4 + 3)
            assert now.dropped.get("no_slot", 0) == 0


def test_results_are_those_of_the_picture_whatever_the_stride(bench: Bench) -> None:
    results_are_those_of_the_picture(bench, HostDevice())


@pytest.mark.gpu
def test_results_are_those_of_the_picture_on_a_gpu(bench: Bench) -> None:
    device = CudaDevice()
    results_are_those_of_the_picture(bench, device)
    device.close()


def test_b23_unplugged_and_back_as_another_node_within_two_seconds(bench: Bench) -> None:
    with running(bench, HostDevice(), "size=64x48&format=GREY") as camera:
        until_processed(camera, 3)
        for number in range(1, 4):
            before = camera.statistics()
            bench.camera.gone = True
            for node in bench.dev.glob("video*"):
                node.unlink()
            until_state(camera, CameraState.RECONNECTING)
            assert "gone" in (camera.cause or "")
            until(lambda: bench.camera.opened == 0, "everything is closed")
            with camera.latest() or pytest.fail("the last picture stays"):
                pass
            until(lambda: "is away" in (camera.cause or ""), "an attempt while it is away")
            # Another one of the same make takes the old place, the right one comes back elsewhere.
            make_nodes(bench.dev, 0, number)
            bench.system.cameras = {
                str(bench.dev / "video0"): FakeCamera(bench.camera.modes, bus="usb-elsewhere"),
                str(bench.dev / f"video{number}"): bench.camera,
            }
            bench.camera.gone = False
            until_state(camera, CameraState.RUNNING, 2.0)
            now = camera.statistics()
            assert now.reconnects == before.reconnects + 1
            assert now.source is not None
            assert now.source.details["device"] == str(bench.dev / f"video{number}")
            assert now.sequence is not None
            assert now.sequence >= (before.sequence or 0), "numbers go on"


def test_b30_one_without_bandwidth_leaves_the_other_alone(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other")
    other.camera.pace_s = 0.005
    other.system.fail["STREAMON"] = [28] * 100
    with running(bench, HostDevice(), "size=64x48") as good, running(other, HostDevice(), "size=64x48") as starved:
        until_state(starved, CameraState.RECONNECTING)
        assert "USB bandwidth" in (starved.cause or "")
        begin = good.statistics().processed
        until_processed(good, begin + 10)
        assert good.state is CameraState.RUNNING


def size_of(camera: Camera) -> tuple[int, int]:
    source = camera.statistics().source
    return (0, 0) if source is None else (source.image.width, source.image.height)


def test_b20_another_format_in_mid_stream_keeps_every_slot(bench: Bench) -> None:
    with running(bench, HostDevice(), "format=GREY") as camera:
        for size in ((128, 96), (65, 47), (64, 48)):
            until_state(camera, CameraState.RUNNING)
            bench.camera.size = size
            bench.camera.events.append(5)
            until(lambda size=size: size_of(camera) == size)  # type: ignore[misc]
            before = camera.statistics().processed
            until_processed(camera, before + 2)
            with camera.latest() or pytest.fail("no picture") as lease:
                assert (lease.result.spec.width, lease.result.spec.height) == size
        assert camera.statistics().reconnects == 0


def test_a_stage_that_is_slow_never_costs_the_driver_its_buffers(bench: Bench) -> None:
    """Frames are dropped in the ring, newest wins; the driver always has its slots."""
    bench.camera.pace_s = 0.0005
    with running(bench, HostDevice(), "size=128x96&format=NV12&queue=2", "gaussian_blur(ksize=31)") as camera:
        until_processed(camera, 20)
        assert len(bench.camera.queued) >= 1
        leases = [lease for _ in range(3) if (lease := camera.latest()) is not None]
        begin = camera.statistics().captured
        until(lambda: camera.statistics().captured > begin + 20, "frames while readers hold some")
        for lease in leases:
            lease.release()
        assert camera.statistics().dropped.get("no_slot", 0) == 0
