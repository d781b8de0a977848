"""What is written into frames on the GPU: each frame's own text, however many are launched at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kernels.chain import Chain, Step, parse_chain
from kernels.device import CudaDevice
from kernels.formats import BGR8, GRAY8, NV12, PixelFormat
from kernels.image import ImageSpec, ImageView
from kernels.op import TextOp
from kernels.plan import chain_params, make_plan, result_nbytes, slot_source_spec
from tests.kernels.cases import SourceCase, check_exact, paint_random, stamp_of
from tests.kernels.oracles import ChainOracle
from tests.kernels.strategies import extreme_steps, short

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    device = CudaDevice()
    yield device
    device.close()


@pytest.mark.parametrize("format", [BGR8, GRAY8, NV12], ids=str)
@pytest.mark.parametrize("step", [step for step in extreme_steps() if isinstance(step.op, TextOp)], ids=short)
def test_every_text_is_exact(device: CudaDevice, format: PixelFormat, step: Step) -> None:
    for size in ((1, 1), (129, 47), (641, 479)):
        check_exact(device, SourceCase(format, *size, 4, 1).spec(), Chain((step,)), frames=2)


@pytest.mark.parametrize("format", [BGR8, GRAY8, NV12], ids=str)
def test_texts_among_other_ops_are_each_their_own(device: CudaDevice, format: PixelFormat) -> None:
    for chain in (
        "sobel | overlay_text(position='bottom_right', scale=1) | gaussian_blur | overlay_text(text='{ms}', y=9)",
        "overlay_text(text='{sequence}') | grayscale | flip | overlay_text(position='top_right', scale=3)",
        " | ".join(f"overlay_text(text='{n} {{sequence}}', position='xy', y={40 * n})" for n in range(8)),
    ):
        check_exact(device, SourceCase(format, 640, 360).spec(), chain, frames=3)


def test_frames_that_are_launched_without_waiting_keep_their_texts(device: CudaDevice) -> None:
    spec = slot_source_spec(ImageSpec.make(NV12, 640, 360))
    chain = parse_chain("gaussian_blur | overlay_text(text='{camera} {sequence} {time}.{ms}')")
    plan = make_plan(chain, spec)
    source_memory = device.allocate_slot(spec.nbytes)
    results = [device.allocate_slot(result_nbytes(plan)) for _ in range(16)]
    source = ImageView(spec, source_memory.array, source_memory.dev_ptr)
    paint_random(3)(source)
    executor = device.make_executor(plan)
    completions = [
        executor.submit(
            source, ImageView(plan.result, memory.array, memory.dev_ptr), chain_params(chain), stamp_of(number)
        )
        for number, memory in enumerate(results)
    ]
    for completion in completions:
        completion.wait()
    for number, memory in enumerate(results):
        expected = ChainOracle()(source, chain, stamp_of(number))
        np.testing.assert_array_equal(ImageView(plan.result, memory.array).plane(0), expected, f"frame {number}")
    executor.close()
    for memory in (source_memory, *results):
        memory.close()
