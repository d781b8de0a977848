"""Every stencil at its extreme parameters on CUDA: alone, and in a pass with one that shrinks the halo before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels.chain import Chain, Step, parse_chain
from kernels.device import CudaDevice
from kernels.formats import BGR8, GRAY8, PixelFormat
from kernels.op import OpKind
from tests.kernels.cases import SourceCase, check_exact
from tests.kernels.strategies import extreme_steps, short

pytestmark = pytest.mark.gpu

# Smaller than any window; a row and a column; across and down from one tile to the next, by a little and by much.
SIZES = ((1, 1), (2, 3), (64, 1), (1, 64), (17, 15), (129, 17), (385, 33), (300, 97))
STENCILS = [step for step in extreme_steps() if step.op.kind is OpKind.STENCIL]


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    device = CudaDevice()
    yield device
    assert device.ledger.held("pinned") == 0
    assert device.ledger.held("device") == 0


@pytest.mark.parametrize("format", [BGR8, GRAY8], ids=str)
@pytest.mark.parametrize("step", STENCILS, ids=short)
def test_every_stencil_is_exact(device: CudaDevice, step: Step, format: PixelFormat) -> None:
    before = parse_chain("invert | sobel").steps
    for size in SIZES:
        for steps in ((step,), (*before, step)):
            check_exact(device, SourceCase(format, *size, 4, 1).spec(), Chain(steps))
