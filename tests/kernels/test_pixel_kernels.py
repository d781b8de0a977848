"""The CUDA text of the pixel ops against the integer oracles, run by the processor: see host_kernels.py."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.chain import Step, parse_chain
from kernels.formats import BGR8, GRAY8, PixelFormat
from kernels.op import OpParams
from tests.kernels.cases import SourceCase
from tests.kernels.host_kernels import PIXEL_OPS, build, run
from tests.kernels.oracles import oracle_op
from tests.kernels.oracles_gather import FARTHEST_STEPS, USUAL_STEPS
from tests.kernels.strategies import extreme_steps, op_params
from tests.programs import program

pytestmark = pytest.mark.program("c++")

# Where a row ends within a word, a thread's pixels, a row's padding and a block.
SIZES = ((1, 1), (1, 9), (7, 1), (42, 3), (43, 5), (44, 2), (85, 17), (127, 8), (128, 9), (129, 7), (257, 3))
ANY_CHANNELS = pytest.mark.parametrize("format", [BGR8, GRAY8], ids=str)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(program("c++"), tmp_path_factory.mktemp("kernels"))


def check(library: ctypes.CDLL, step: Step, case: SourceCase) -> None:
    picture, result = run(library, step, case)
    expected = oracle_op(step.op.name, picture, step.params.model_dump())
    np.testing.assert_array_equal(result, expected, f"{case} {step}")


@ANY_CHANNELS
@pytest.mark.parametrize("step", [step for step in extreme_steps() if step.op.name in PIXEL_OPS], ids=str)
def test_every_pixel_op_is_exact_at_every_size(library: ctypes.CDLL, format: PixelFormat, step: Step) -> None:
    for size in SIZES:
        check(library, step, SourceCase(format, *size))


@ANY_CHANNELS
@pytest.mark.parametrize("how", ["nearest", "linear", "area", "cubic"])
def test_b123_every_ratio_is_exact(library: ctypes.CDLL, format: PixelFormat, how: str) -> None:
    for size in ((1, 1), (64, 48), (131, 97)):
        for to in ((1, 1), (42, 43), (43, 42), (128, 9), (32, 24), (131, 194), (300, 5)):
            step = parse_chain(f"resize(width={to[0]}, height={to[1]}, interpolation={how!r})").steps[0]
            check(library, step, SourceCase(format, *size))


@ANY_CHANNELS
@pytest.mark.parametrize("text", USUAL_STEPS)
def test_points_between_pixels_are_exact(library: ctypes.CDLL, format: PixelFormat, text: str) -> None:
    for size in ((64, 48), (131, 17), (1, 1)):
        check(library, parse_chain(text).steps[0], SourceCase(format, *size))


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from(sorted(PIXEL_OPS)).flatmap(lambda name: op_params(PIXEL_OPS[name]).map(lambda p: (name, p))),
    st.sampled_from([BGR8, GRAY8]),
    st.integers(1, 50),
    st.integers(1, 20),
)
def test_any_parameters_are_exact(
    library: ctypes.CDLL, drawn: tuple[str, OpParams], format: PixelFormat, width: int, height: int
) -> None:
    name, params = drawn
    check(library, Step(PIXEL_OPS[name], params), SourceCase(format, width, height))


@pytest.mark.parametrize("text", FARTHEST_STEPS)
def test_the_farthest_points_of_the_longest_sides_do_not_overflow(library: ctypes.CDLL, text: str) -> None:
    for size in ((16384, 2), (2, 16384)):
        check(library, parse_chain(text).steps[0], SourceCase(GRAY8, *size))


@pytest.mark.parametrize("how", ["nearest", "linear", "area", "cubic"])
def test_the_longest_sides_do_not_overflow(library: ctypes.CDLL, how: str) -> None:
    for size, to in (((16384, 3), (301, 2)), ((3, 16384), (2, 301)), ((301, 2), (16384, 1)), ((16384, 2), (1, 1))):
        step = parse_chain(f"resize(width={to[0]}, height={to[1]}, interpolation={how!r})").steps[0]
        check(library, step, SourceCase(GRAY8, *size))


def test_the_comparison_sees_one_wrong_pixel(library: ctypes.CDLL) -> None:
    picture, result = run(library, parse_chain("flip").steps[0], SourceCase(BGR8, 9, 9))
    picture[8, 8, 2] ^= 1
    assert (result != oracle_op("flip", picture, {"direction": "horizontal"})).sum() == 1
