from __future__ import annotations

import cv2
import numpy as np
import pytest

from kernels.chain import Chain, parse_chain
from kernels.device import HostDevice
from kernels.errors import InputError
from kernels.formats import BGR8, GRAY8, I420, NV12, YUYV, Matrix, PixelFormat, Range
from kernels.image import ImageSpec
from kernels.plan import PassKind, make_plan
from tests.kernels.targets import SIZES, TARGETS, check_target, oracle_planes


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("format", [BGR8, GRAY8, NV12], ids=str)
def test_every_target_is_exact(format: PixelFormat, target: PixelFormat) -> None:
    device = HostDevice()
    for size in SIZES:
        for chain in ("", "gamma(gamma=1.5)", "sobel | flip", "sobel | grayscale"):
            check_target(device, ImageSpec.make(format, *size), chain, target)


def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    for pixels in (1, 200, 1000):
        monkeypatch.setattr("kernels.color_cpu.BAND_PIXELS", pixels)
        for size in ((63, 7), (64, 8)):
            check_target(HostDevice(), ImageSpec.make(BGR8, *size), "", I420)


def test_the_planes_are_what_jpeg_means() -> None:
    """Within a level of the standard's real numbers, which OpenCV computes."""
    picture = np.random.default_rng(1).integers(0, 256, (40, 60, 3), np.uint8)
    planes = np.frombuffer(oracle_planes(picture, I420), np.uint8)
    luma, u = planes[: 40 * 60].reshape(40, 60), planes[40 * 60 : 40 * 60 + 20 * 30].reshape(20, 30)
    real = cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_BGR2YCrCb) * 255
    assert np.abs(luma - real[..., 0]).max() < 0.6
    means = real[..., 2].reshape(20, 2, 30, 2).mean(axis=(1, 3))
    assert np.abs(u - np.clip(means, 0, 255)).max() < 1.1


def test_the_result_says_what_its_codes_mean_and_leaves_in_one_pass() -> None:
    plan = make_plan(parse_chain("gamma | sobel"), ImageSpec.make(YUYV, 1280, 720), I420)
    assert plan.result == ImageSpec.make(I420, 1280, 720, matrix=Matrix.BT601, range=Range.FULL)
    assert plan.link_bytes_out == 1280 * 720 * 3 // 2
    assert [one.kind for one in plan.passes] == [PassKind.INGEST, PassKind.TILES]
    empty = make_plan(Chain(), ImageSpec.make(BGR8, 63, 47), NV12)
    assert [one.kind for one in empty.passes] == [PassKind.INGEST, PassKind.TILES]


def test_other_targets_are_refused() -> None:
    with pytest.raises(InputError, match="YUYV cannot be made of BGR8"):
        make_plan(Chain(), ImageSpec.make(NV12, 64, 48), YUYV)
    with pytest.raises(InputError, match="BGR8 cannot be made of GRAY8"):
        make_plan(Chain(), ImageSpec.make(GRAY8, 64, 48), BGR8)
