"""Ops that count a whole picture's values, at their extremes and among others, over frames that differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from kernels.chain import Chain, Step, parse_chain
from kernels.device import CudaDevice, HostDevice
from kernels.formats import BGR8, GRAY8, NV12, PixelFormat
from kernels.image import ImageSpec
from kernels.op import OpKind
from tests.kernels.cases import Paint, SourceCase, check_exact, paint_random, run_on
from tests.kernels.statistic_cases import EdgeCases, StatisticCases, paint_spiral
from tests.kernels.strategies import extreme_steps, short

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    device = CudaDevice()
    yield device
    device.close()


@pytest.mark.parametrize("format", [BGR8, GRAY8, NV12], ids=str)
@pytest.mark.parametrize("step", [step for step in extreme_steps() if step.op.kind is OpKind.GLOBAL], ids=short)
def test_every_statistic_is_exact(device: CudaDevice, format: PixelFormat, step: Step) -> None:
    """What a frame's counts leave behind would show in the next frame's."""
    for size in ((1, 1), (7, 64), (129, 47), (641, 479)):
        check_exact(device, SourceCase(format, *size, 4, 1).spec(), Chain((step,)), frames=3)


class TestStatisticCases(StatisticCases):
    pass


class TestEdgeCases(EdgeCases):
    pass


@pytest.mark.parametrize("paint", [paint_spiral, paint_random(7)], ids=["spiral", "noise"])
@pytest.mark.parametrize("text", ["canny", "canny(low=0, high=0)", "canny(low=0, high=2040, norm='l2')"])
def test_edges_of_a_whole_4k_picture_are_opencvs(device: CudaDevice, text: str, paint: Paint) -> None:
    """A way as long as a picture can hold, and noise, in which all hangs together with all."""
    source, made = run_on(device, ImageSpec.make(GRAY8, 3840, 2160), parse_chain(text), paint)
    _, expected = run_on(HostDevice(), ImageSpec.make(GRAY8, 3840, 2160), parse_chain(text), paint)
    np.testing.assert_array_equal(made, expected)
    assert source.spec.width == made.shape[1]


@pytest.mark.parametrize("size", [(33, 20), (640, 360)], ids=str)
def test_statistics_follow_from_what_the_ops_before_them_made(device: CudaDevice, size: tuple[int, int]) -> None:
    for chain in (
        "gaussian_blur(ksize=9) | equalize_histogram | sharpen | auto_contrast(channels='each') | gamma",
        "auto_white_balance | grayscale | otsu_threshold | dilate(ksize=3) | equalize_histogram",
        "resize(width=70) | auto_contrast(dark=20) | flip | otsu_threshold(inverted=True)",
        "clahe(tiles_x=16, tiles_y=1) | gaussian_blur | clahe(statistic='previous') | sharpen | grayscale | clahe",
    ):
        check_exact(device, SourceCase(NV12, *size).spec(), chain, frames=3)
