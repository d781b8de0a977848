"""Pictures of 16 bits on CUDA: every op that takes them at its extremes, chains, targets, and random chains by hand."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.chain import Chain, Step, parse_chain
from kernels.device import CudaDevice
from kernels.formats import BGR16, GRAY16, PixelFormat
from kernels.op import OpKind
from tests.kernels.cases import SourceCase, check_exact
from tests.kernels.strategies import short
from tests.kernels.wide_cases import BOTH_DEPTHS, WIDE_STEPS, WideCases, wide_chains

pytestmark = pytest.mark.gpu

# Smaller than any window; a row and a column; across and down from one tile to the next, by a little and by much.
SIZES = ((1, 1), (2, 3), (64, 1), (1, 64), (17, 15), (65, 17), (193, 33), (300, 97))


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    device = CudaDevice()
    yield device
    assert device.ledger.held("pinned") == 0
    assert device.ledger.held("device") == 0


class TestWideCases(WideCases):
    pass


@BOTH_DEPTHS
@pytest.mark.parametrize("step", WIDE_STEPS, ids=short)
def test_every_op_of_16_bits_is_exact(device: CudaDevice, format: PixelFormat, step: Step) -> None:
    """Alone, and a stencil also in a pass with one that shrinks the halo before it."""
    before = parse_chain("invert | sobel").steps
    for index, size in enumerate(SIZES):
        check_exact(device, SourceCase(format, *size, *((13, 3), (64, 0))[index % 2]).spec(), Chain((step,)), frames=2)
        if step.op.kind is OpKind.STENCIL:
            check_exact(device, SourceCase(format, *size, 4, 1).spec(), Chain((*before, step)))


@settings(
    max_examples=int(os.environ.get("PINHOLE_RANDOM_CHAINS", "20")),
    deadline=None, suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(wide_chains(), st.sampled_from([GRAY16, BGR16]), st.integers(1, 700), st.integers(1, 90))
def test_random_chains_of_16_bits_are_exact(
    device: CudaDevice, chain: Chain, format: PixelFormat, width: int, height: int
) -> None:
    check_exact(device, SourceCase(format, width, height, 4, 1).spec(), chain, frames=2)


@BOTH_DEPTHS
@pytest.mark.parametrize("size", [(1279, 719), (1920, 1080), (4096, 33), (33, 4096)], ids=str)
def test_large_pictures_of_16_bits_are_exact(device: CudaDevice, format: PixelFormat, size: tuple[int, int]) -> None:
    std4 = "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sharpen"
    check_exact(device, SourceCase(format, *size, 64).spec(), std4)
