"""Every op × pixel format × size, 3840x2160 with them: the GPU's result against the CPU form's, which is other code.

The CPU forms are what oracles are compared with at chosen sizes everywhere (tests/kernels), the GPU forms at more of
them (the other files here). At these sizes the oracles themselves would take hours.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kernels.chain import parse_chain
from kernels.device import CudaDevice, HostDevice
from kernels.errors import InputError
from kernels.formats import FORMATS, PixelFormat
from kernels.op import OpKind
from kernels.plan import make_plan
from kernels.registry import all_ops
from tests.kernels.cases import SourceCase, paint_random, paint_scene, run_sequence
from tests.kernels.catalogue_pictures import example_of
from tests.kernels.oracles_stencil import LEVELS_APART

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

# Width, height, and what rows are aligned to; 1366 px of one byte in rows of 1408.
SIZES = (
    (1, 1, 1), (1, 64, 1), (17, 19, 1), (638, 480, 1), (641, 479, 1), (1366, 768, 1408), (1920, 1080, 1),
    (3840, 2160, 1),
)  # fmt: skip


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    device = CudaDevice()
    yield device
    assert device.ledger.held("pinned") == device.ledger.held("device") == 0


def takes(name: str, format: PixelFormat) -> bool:
    """False for the ops that are refused on 16 bits."""
    try:
        make_plan(parse_chain(example_of(all_ops()[name]).chain), SourceCase(format, 8, 8).spec())
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "format"),
    [(name, format) for name in all_ops() for format in FORMATS.values() if takes(name, format)],
    ids=str,
)
def test_gpu_and_cpu_agree_on_every_size(device: CudaDevice, name: str, format: PixelFormat) -> None:
    chain = parse_chain(example_of(all_ops()[name]).chain)
    remembers = any(step.op.kind is OpKind.TEMPORAL for step in chain.steps)
    for width, height, alignment in SIZES:
        seed = width * 31 + height
        paints = [paint_scene(seed, number) for number in range(3)] if remembers else [paint_random(seed)]
        spec = SourceCase(format, width, height, alignment).spec()
        frames = [(chain, paint) for paint in paints]
        ours, theirs = (run_sequence(device, spec, frames)[-1][1], run_sequence(HostDevice(), spec, frames)[-1][1])
        apart = max((LEVELS_APART.get(step.op.name, 0) for step in chain.steps), default=0)
        if apart == 0:
            np.testing.assert_array_equal(ours, theirs, f"{width}x{height}")
        else:
            assert int(np.abs(ours.astype(np.int32) - theirs).max()) <= apart, f"{width}x{height}"
