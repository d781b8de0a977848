"""The CUDA functions of stencils against the integer oracles, run by the processor: see host_windows.py."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kernels.chain import Step
from kernels.image import Pixels
from tests.kernels.host_windows import WINDOW_OPS, build, run
from tests.kernels.oracles import assert_agrees, oracle_op
from tests.kernels.oracles_stencil import bilateral_real
from tests.kernels.strategies import extreme_steps, short
from tests.kernels.test_ops import noise, step_of
from tests.kernels.test_ops import run as run_cpu
from tests.programs import program

pytestmark = pytest.mark.program("c++")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(program("c++"), tmp_path_factory.mktemp("windows"))


def check(library: ctypes.CDLL, step: Step, picture: Pixels) -> None:
    expected = oracle_op(step.op.name, picture, step.params.model_dump())
    assert_agrees(run(library, step, picture), expected, [step.op.name], str(step))


@pytest.mark.parametrize("step", [step for step in extreme_steps() if step.op.name in WINDOW_OPS], ids=short)
def test_every_window_function_is_exact(library: ctypes.CDLL, step: Step) -> None:
    for size in ((1, 1), (2, 3), (23, 31)):
        for channels in (1, 3):
            check(library, step, noise(*size, channels))


@pytest.mark.parametrize("ksize", [3, 5])
def test_the_median_is_right_for_every_order_of_zeros_and_ones(library: ctypes.CDLL, ksize: int) -> None:
    """A network of least and greatest that is right for all zeros and ones is right for all values (Knuth 5.3.4).

    All of the 2^9 windows of 3x3; of 5x5 those that matter most, twelve or thirteen ones, at random places.
    """
    places, middle = ksize * ksize, ksize // 2
    if ksize == 3:
        bits = np.arange(1 << places)[:, None] >> np.arange(places) & 1
    else:
        random = np.random.default_rng(5)
        order = random.permuted(np.tile(np.arange(places), (4096, 1)), axis=1)
        bits = (order < 12 + np.arange(4096)[:, None] % 2).astype(np.int64)
    windows = bits.reshape(-1, ksize, ksize)
    side_by_side = np.concatenate(list(windows), axis=1).astype(np.uint8)
    result = run(library, step_of(f"median(ksize={ksize})"), side_by_side)
    np.testing.assert_array_equal(result[middle, middle::ksize], windows.sum(axis=(1, 2)) > places // 2)


def test_bilateral_means_are_the_real_ones_rounded(library: ctypes.CDLL) -> None:
    """Both forms, by less than what 32-bit floats and OpenCV's tables can be off."""
    for channels in (1, 3):
        picture = noise(31, 37, channels)
        for text in ("bilateral", "bilateral(ksize=9, sigma_color=60, sigma_space=3)"):
            step = step_of(text)
            real = bilateral_real(picture, step.params.model_dump())
            for result in (run(library, step, picture), run_cpu(step, picture)):
                assert np.abs(result - real).max() <= 0.505


def test_the_comparison_sees_one_wrong_pixel(library: ctypes.CDLL) -> None:
    picture = noise(9, 9, 3)
    result = run(library, step_of("sobel"), picture)
    result[8, 8, 2] ^= 1
    assert (result != oracle_op("sobel", picture, {})).sum() == 1
