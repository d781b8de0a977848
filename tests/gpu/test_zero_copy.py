"""Zero copy, proven by the driver's own trace: no copy of a frame; and a control in which there are copies."""

from __future__ import annotations

import pytest

from kernels.chain import parse_chain
from kernels.device import CudaDevice
from kernels.formats import BGR8, NV12, PixelFormat
from kernels.image import ImageView
from kernels.plan import chain_params, make_plan, result_nbytes, slot_source_spec
from pipeline.camera import Camera, CameraConfig
from tests.gpu.cupti import Copy, library, traced_copies
from tests.kernels.cases import SourceCase

pytestmark = [pytest.mark.gpu, pytest.mark.leaks_allowed("CUPTI keeps a thread and descriptors of its own")]
FRAMES = 20
CHAIN = "gaussian_blur | gamma | sharpen"


@pytest.fixture(autouse=True)
def cupti() -> None:
    if library() is None:
        pytest.fail("libcupti is not installed: nothing proves that no frame is copied")


def copies_of(strategy: str, format: PixelFormat = BGR8) -> tuple[list[Copy], int, int]:
    """The copies of ``FRAMES`` frames once everything is warm, and the bytes of a source and a result."""
    device = CudaDevice(memory=strategy)
    chain = parse_chain(CHAIN)
    plan = make_plan(chain, slot_source_spec(SourceCase(format, 1280, 720).spec()))
    executor = device.make_executor(plan)
    memory = [device.allocate_slot(nbytes) for nbytes in (plan.source.nbytes, result_nbytes(plan))]
    source, result = (
        ImageView(spec, one.array, one.dev_ptr) for spec, one in zip((plan.source, plan.result), memory, strict=True)
    )
    params = chain_params(chain)
    try:
        executor.submit(source, result, params).wait()
        with traced_copies() as copies:
            for _ in range(FRAMES):
                executor.submit(source, result, params).wait()
        return copies, plan.source.pixel_bytes, plan.result.nbytes
    finally:
        executor.close()
        for one in memory:
            one.close()


@pytest.mark.parametrize("format", [BGR8, NV12], ids=str)
@pytest.mark.parametrize("strategy", ["zero_copy", "registered", "unified"])
def test_nothing_of_a_frame_is_copied(strategy: str, format: PixelFormat) -> None:
    copies, _, _ = copies_of(strategy, format)
    assert sum(copy.nbytes for copy in copies) < 4096, copies[:8]


@pytest.mark.parametrize("format", [BGR8, NV12], ids=str)
@pytest.mark.parametrize("strategy", ["staged", "pageable"])
def test_the_trace_sees_the_copies_of_the_others(strategy: str, format: PixelFormat) -> None:
    """The control: the witness would have seen them."""
    copies, source, result = copies_of(strategy, format)
    into = sum(copy.nbytes for copy in copies if copy.way == "to_device")
    out = sum(copy.nbytes for copy in copies if copy.way == "from_device")
    assert FRAMES * source <= into < FRAMES * source * 1.1
    assert FRAMES * result <= out < FRAMES * result * 1.1


@pytest.mark.parametrize(("strategy", "copied"), [("zero_copy", False), ("staged", True)])
def test_the_cameras_own_count_is_what_the_trace_saw(strategy: str, copied: bool) -> None:
    """From the capture thread to the result, of a camera that runs."""
    device = CudaDevice(memory=strategy)
    camera = Camera(CameraConfig("card", "testcard://?size=640x480&fps=200&format=BGR8", parse_chain(CHAIN)), device)
    camera.start()
    try:
        lease = camera.wait_newer(20, 10)
        assert lease is not None
        lease.release()
        with traced_copies() as copies:
            before = camera.statistics()
            lease = camera.wait_newer((before.sequence or 0) + 50, 10)
            assert lease is not None
            lease.release()
            after = camera.statistics()
    finally:
        assert camera.stop(5)
    traced = sum(copy.nbytes for copy in copies)
    counted = sum(after.copied_bytes.values()) - sum(before.copied_bytes.values())
    frame = 640 * 480 * 3
    assert after.copied_bytes_per_frame == (2 * frame if copied else 0)
    # A frame or two are under way at either end.
    assert abs(traced - counted) <= 4 * 2 * frame if copied else traced < 4096
    assert counted == 0 or copied
