"""The CUDA text of the temporal ops against the integer oracles, run by the processor: see host_kernels.py."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from kernels.chain import Step
from kernels.formats import BGR8, GRAY8, PixelFormat
from kernels.image import Pixels
from tests.kernels.cases import SourceCase, make_source, paint_scene
from tests.kernels.host_kernels import TEMPORAL_OPS, build, run_frames
from tests.kernels.oracles_temporal import TEMPORAL_ORACLES
from tests.kernels.strategies import extreme_steps
from tests.kernels.temporal_cases import SEQUENCE_SIZES
from tests.kernels.test_ops import noise
from tests.programs import program

pytestmark = pytest.mark.program("c++")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(program("c++"), tmp_path_factory.mktemp("kernels"))


def check(library: ctypes.CDLL, steps: Sequence[Step], pictures: Sequence[Pixels]) -> None:
    oracle = TEMPORAL_ORACLES[steps[0].op.name]()
    made = run_frames(library, steps, pictures)
    for number, (step, picture, result) in enumerate(zip(steps, pictures, made, strict=True)):
        expected = oracle(picture, step.params.model_dump())
        np.testing.assert_array_equal(result, expected, f"frame {number}: {step}")


def scene(format: PixelFormat, size: tuple[int, int], count: int) -> list[Pixels]:
    spec = SourceCase(format, *size).spec()
    return [make_source(spec, np.empty(spec.nbytes, np.uint8), paint_scene(7, n)).plane(0) for n in range(count)]


@pytest.mark.parametrize("name", TEMPORAL_OPS)
@pytest.mark.parametrize("format", [BGR8, GRAY8], ids=str)
def test_every_temporal_op_is_exact_while_its_parameters_change(
    library: ctypes.CDLL, format: PixelFormat, name: str
) -> None:
    extremes = [step for step in extreme_steps() if step.op.name == name]
    usual = Step(extremes[0].op, extremes[0].op.Params())
    steps = [step for extreme in extremes for step in (usual, extreme, extreme, usual)]
    for size in SEQUENCE_SIZES:
        check(library, steps, scene(format, size, len(steps)))


@pytest.mark.parametrize("name", TEMPORAL_OPS)
def test_black_and_white_by_turns_do_not_overflow(library: ctypes.CDLL, name: str) -> None:
    for step in extreme_steps():
        if step.op.name == name:
            pictures = [np.full((3, 5), value, np.uint8) for value in (0, 255, 0, 0, 255, 255, 255, 0)]
            check(library, [step] * len(pictures), pictures)


def test_pictures_of_noise_meet_every_branch(library: ctypes.CDLL) -> None:
    for name, op in TEMPORAL_OPS.items():
        assert name in TEMPORAL_ORACLES
        for channels in (1, 3):
            check(library, [Step(op, op.Params())] * 20, [noise(19, 37, channels, seed) for seed in range(20)])


def test_the_comparison_sees_one_value_of_one_frame(library: ctypes.CDLL) -> None:
    op = TEMPORAL_OPS["temporal_denoise"]
    pictures = [noise(9, 9, 3, seed) // 16 for seed in range(3)]
    right = run_frames(library, [Step(op, op.Params())] * 3, pictures)
    pictures[1] = pictures[1].copy()
    pictures[1][8, 8, 2] ^= 8
    wrong = run_frames(library, [Step(op, op.Params())] * 3, pictures)
    assert [int((a != b).sum()) for a, b in zip(right, wrong, strict=True)] == [0, 1, 1]
