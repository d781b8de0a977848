"""Pictures of 16 bits: each op that takes them, against oracles, on the processor as a CPU and as a GPU."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.chain import Chain, Step, parse_chain
from kernels.device import Device, HostDevice
from kernels.errors import InputError
from kernels.formats import BGR16, FORMATS, GRAY16, PixelFormat
from kernels.image import ImageSpec
from kernels.plan import PassKind, make_plan, reads_in_place, slot_source_spec, unfused
from kernels.wide_cpu import narrow
from tests.kernels.cases import SourceCase, check_exact
from tests.kernels.emulator import EmulatedDevice, emulate
from tests.kernels.strategies import short
from tests.kernels.wide_cases import BOTH_DEPTHS, WIDE_OPS, WIDE_STEPS, WideCases, refused, wide_chains
from tests.programs import program

SIZES = ((1, 1), (3, 2), (17, 19), (131, 37), (64, 33), (97, 50))


class TestOnTheCpu(WideCases):
    @pytest.fixture
    def device(self) -> Device:
        return HostDevice()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> EmulatedDevice:
    return emulate(monkeypatch, program("c++"), folder)


@pytest.mark.slow
@pytest.mark.program("c++")
class TestOnTheEmulatedGpu(WideCases):
    sparse = True

    @pytest.fixture
    def device(self, gpu: EmulatedDevice) -> EmulatedDevice:
        return gpu


@pytest.mark.parametrize("step", WIDE_STEPS, ids=short)
@BOTH_DEPTHS
def test_each_op_is_exact_on_the_cpu(format: PixelFormat, step: Step) -> None:
    for index, size in enumerate(SIZES):
        if (index + len(short(step))) % 3 == 0:
            check_exact(HostDevice(), SourceCase(format, *size, 13, 3).spec(), Chain((step,)), frames=2)


EMULATE_ALL = os.environ.get("PINHOLE_EMULATE_ALL", "0") != "0"


def groups(of: int) -> list[tuple[str, ...]]:
    """Every op that takes 16 bits once, in groups; ``levels`` comes last in its own."""
    names = [name for name in WIDE_OPS if name != "levels"]
    random.Random(16).shuffle(names)
    names.append("levels")
    return [tuple(names[at : at + of]) for at in range(0, len(names), of)]


@pytest.mark.program("c++")
@pytest.mark.parametrize("names", groups(1 if EMULATE_ALL else 5), ids=" ".join)
def test_each_op_is_exact_on_the_gpu(gpu: EmulatedDevice, names: tuple[str, ...]) -> None:
    """Extreme steps of each, ops in groups, so that a few texts hold all; PINHOLE_EMULATE_ALL=1: each op by itself."""
    steps = [[step for step in WIDE_STEPS if step.op.name == name] for name in names]
    for index in range(max(map(len, steps))):
        chain = Chain(tuple(of_op[index % len(of_op)] for of_op in steps))
        for format in (GRAY16, BGR16) if EMULATE_ALL else (BGR16,):
            for size in ((3, 2), (131, 37)) if EMULATE_ALL else (((67, 37), (3, 2))[index % 2],):
                check_exact(gpu, SourceCase(format, *size, 13, 3).spec(), chain, frames=2)


@pytest.mark.program("c++")
@pytest.mark.parametrize(
    ("format", "chain"),
    [(GRAY16, "rotate(degrees=90) | gamma | levels"), (BGR16, "levels(bits=12) | invert | sobel"), (BGR16, "sharpen")],
    ids=str,
)
def test_a_slot_of_16_bits_is_read_in_place(gpu: EmulatedDevice, format: PixelFormat, chain: str) -> None:
    """By a gather, by a table, and by a stencil."""
    gpu.change = reads_in_place
    for size in ((64, 33), (131, 37)):
        spec = slot_source_spec(ImageSpec.make(format, *size))
        assert reads_in_place(make_plan(parse_chain(chain), spec)).passes[0].kind is PassKind.TILES
        check_exact(gpu, spec, chain, frames=2)


# 150 of them were run by hand: PINHOLE_RANDOM_CHAINS=150.
@pytest.mark.program("c++")
@settings(
    max_examples=int(os.environ.get("PINHOLE_RANDOM_CHAINS", "3")),
    deadline=None, suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(wide_chains(), st.sampled_from([GRAY16, BGR16]), st.integers(1, 280), st.integers(1, 40))
def test_fused_equals_unfused_over_random_chains_of_16_bits(
    gpu: EmulatedDevice, chain: Chain, format: PixelFormat, width: int, height: int
) -> None:
    for change in (None, unfused):
        gpu.change = change
        check_exact(gpu, SourceCase(format, width, height, 4, 1).spec(), chain, frames=2)


@settings(max_examples=30, deadline=None)
@given(wide_chains(), st.sampled_from([GRAY16, BGR16]), st.integers(1, 70), st.integers(1, 70))
def test_any_chain_of_16_bits_is_exact_on_the_cpu(chain: Chain, format: PixelFormat, width: int, height: int) -> None:
    check_exact(HostDevice(), SourceCase(format, width, height, 13, 1).spec(), chain, frames=2)


@pytest.mark.parametrize("step", refused(), ids=lambda step: step.op.name)
@BOTH_DEPTHS
def test_an_op_of_8_bits_is_refused_by_name_place_and_remedy(format: PixelFormat, step: Step) -> None:
    chain = parse_chain("invert | sobel")
    with pytest.raises(InputError) as caught:
        make_plan(Chain((*chain.steps, step)), ImageSpec.make(format, 64, 48))
    assert caught.value.field == "ops[2]"
    assert (
        f"{step.op.name}, operation 3 of 3, takes pictures of 8 bits and is given one of 16: put levels before it"
        in str(caught.value)
    )
    levels = parse_chain("levels")
    plan = make_plan(Chain((*chain.steps, *levels.steps, step)), ImageSpec.make(format, 64, 48))
    assert plan.result.format.depth == 8


def test_the_depth_is_the_sources_until_levels() -> None:
    plan = make_plan(parse_chain("invert | grayscale | levels | sobel"), ImageSpec.make(BGR16, 64, 48))
    assert [str(picture.format) for picture in plan.pictures] == ["BGR16", "BGR16", "GRAY16", "GRAY8", "GRAY8"]
    assert plan.result == ImageSpec.make(FORMATS["GRAY8"], 64, 48)
    assert make_plan(parse_chain("sobel"), ImageSpec.make(BGR16, 64, 48)).result.format is BGR16


def test_stencils_of_8_and_of_16_bits_share_no_pass() -> None:
    plan = make_plan(parse_chain("sobel | gamma | levels | sobel | sharpen"), ImageSpec.make(GRAY16, 64, 48))
    assert [(one.first, one.last) for one in plan.passes] == [(0, 0), (0, 3), (3, 5)]


def test_narrowing_is_right_for_every_value() -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    made = np.empty((256, 256), np.uint8)
    narrow(values, made)
    np.testing.assert_array_equal(made, (2 * values.astype(np.int64) + 257) // 514)
