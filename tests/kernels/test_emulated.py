"""The whole text of a frame's kernel, and the executor as it is, on the processor: see emulator.py."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels import auto
from kernels.chain import Chain, Step, parse_chain
from kernels.crossing import Crossing
from kernels.formats import BGR8, FORMATS, GRAY8, I420, NV12, PixelFormat
from kernels.plan import Plan, make_plan, reads_in_place, slot_source_spec, unfused
from kernels.registry import all_ops
from tests.kernels.cases import CHAINS, SourceCase, check_exact
from tests.kernels.emulator import EmulatedDevice, emulate
from tests.kernels.oracles_stencil import LEVELS_APART
from tests.kernels.statistic_cases import EdgeCases, StatisticCases
from tests.kernels.strategies import exact_chains
from tests.kernels.targets import TARGETS, check_target
from tests.programs import program

pytestmark = pytest.mark.program("c++")

# One tile, the last rows and columns of one, some across and down; a row that is whole words and rows that are not.
SIZES = ((1, 1), (3, 2), (64, 33), (131, 17), (400, 35))
STD4 = "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sharpen"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, folder: Path) -> EmulatedDevice:
    return emulate(monkeypatch, program("c++"), folder)


def check(device: EmulatedDevice, format: PixelFormat, chain: str | Chain, sizes: tuple[tuple[int, int], ...]) -> None:
    for size in sizes:
        check_exact(device, SourceCase(format, *size, 13, 3).spec(), chain, frames=3)
    assert device.grids
    assert device.ledger.held("device") == 0


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_every_format_is_ingested(device: EmulatedDevice, format: PixelFormat) -> None:
    check(device, format, "invert | grayscale | gamma", (*SIZES, (1030, 5)))


@pytest.mark.parametrize("chain", CHAINS)
def test_every_chain_is_exact(device: EmulatedDevice, chain: str) -> None:
    check(device, NV12, chain, SIZES)


def groups(of: int) -> list[tuple[str, ...]]:
    """Every op once, in groups; one that only nearly agrees comes last in its group."""
    names = [name for name in all_ops() if name not in LEVELS_APART]
    random.Random(4).shuffle(names)
    found = [tuple(names[at : at + of]) for at in range(0, len(names), of)]
    return found + [("sobel", name) for name in LEVELS_APART if name in all_ops()]


@pytest.mark.parametrize("names", groups(4), ids=" ".join)
def test_ops_share_passes(device: EmulatedDevice, names: tuple[str, ...]) -> None:
    chain = Chain(tuple(Step(all_ops()[name], all_ops()[name].Params()) for name in names))
    check(device, BGR8, chain, ((3, 2), (141, 37)))
    check(device, GRAY8, chain, ((65, 18),))


@pytest.mark.parametrize("change", [unfused, reads_in_place], ids=lambda f: f.__name__)
@pytest.mark.parametrize("chain", [STD4, CHAINS[8], CHAINS[13]])
def test_every_plan_of_a_chain_is_exact(device: EmulatedDevice, chain: str, change: Callable[[Plan], Plan]) -> None:
    device.change = change
    for size in SIZES:
        check_exact(device, slot_source_spec(SourceCase(BGR8, *size).spec()), chain, frames=3)


COPIES = [Crossing(1, 1), Crossing(3, 0), Crossing(0, 3), Crossing(8, 8)]


@pytest.mark.parametrize("crossing", COPIES, ids=str)
@pytest.mark.parametrize("chain", ["", STD4, "flip | sobel", "equalize_histogram"])
def test_frames_may_be_copied(device: EmulatedDevice, chain: str, crossing: Crossing) -> None:
    device.crossing = crossing
    for format, size in ((BGR8, (131, 50)), (GRAY8, (400, 70))):
        check_exact(device, slot_source_spec(SourceCase(format, *size).spec()), chain, frames=3)
    assert device.ledger.held("device") == 0


@pytest.mark.parametrize("crossing", COPIES, ids=str)
def test_every_format_and_target_may_be_copied(device: EmulatedDevice, crossing: Crossing) -> None:
    device.crossing = crossing
    for format in list(FORMATS.values())[COPIES.index(crossing) :: 2]:
        check_exact(device, SourceCase(format, 141, 67, 13, 3).spec(), "sobel", frames=2)
    for target in TARGETS:
        check_target(device, SourceCase(I420, 63, 47).spec(), "sobel", target)


def test_the_fastest_way_is_chosen_once(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of all ways a result is the same; the choice is on disk then, and nothing is measured again."""
    monkeypatch.setenv("PINHOLE_CACHE_DIR", str(tmp_path))
    device.memory = "auto"
    monkeypatch.setattr(auto, "ROUNDS", 1)
    monkeypatch.setattr(auto, "WARM_UP", 0)
    spec = slot_source_spec(SourceCase(NV12, 64, 50).spec())
    plan = make_plan(parse_chain("sobel"), spec)
    executor = auto.make_fastest(device, plan, "block")
    executor.close()
    choice = executor.choice
    assert choice is not None
    assert str(executor.crossing) == choice["chosen"]
    assert len(choice["microseconds"]) == len(auto.candidates(plan, True))
    monkeypatch.setattr(auto, "measure", None)
    again = auto.make_fastest(device, plan, "block")
    again.close()
    assert again.choice == choice
    assert device.ledger.held("device") == device.ledger.held("host") == 0


def test_rows_that_are_not_waited_for_show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kernels import codegen

    broken = dict(codegen.headers())
    wait = "if constexpr (AWAITS) wait_for_source(f, block.y0, block.y0 + SEGMENT_ROWS, a.height);"
    assert broken["pinhole/ingest.cuh"].count(wait) == 1
    broken["pinhole/ingest.cuh"] = broken["pinhole/ingest.cuh"].replace(wait, wait.replace("block.y0 + SEG", "SEG"))
    monkeypatch.setattr("tests.kernels.emulator.headers", lambda: broken)
    device = emulate(monkeypatch, program("c++"), tmp_path)
    device.crossing = Crossing(3, 3)
    with pytest.raises(AssertionError):
        check_exact(device, SourceCase(NV12, 64, 50).spec(), "gamma", frames=2)


@pytest.mark.parametrize("multiprocessors", [3, 30])
def test_any_number_of_blocks_shares_the_work(
    monkeypatch: pytest.MonkeyPatch, folder: Path, multiprocessors: int
) -> None:
    device = emulate(monkeypatch, program("c++"), folder, multiprocessors)
    check(device, NV12, STD4, ((64, 33), (131, 17), (400, 70)))
    assert max(device.grids) > 4


# 500 of them were run by hand: PINHOLE_RANDOM_CHAINS=500.
@settings(
    max_examples=int(os.environ.get("PINHOLE_RANDOM_CHAINS", "6")),
    deadline=None, suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(exact_chains, st.sampled_from([BGR8, GRAY8, NV12]), st.integers(1, 280), st.integers(1, 40))
def test_fused_equals_unfused_over_random_chains(
    device: EmulatedDevice, chain: Chain, format: PixelFormat, width: int, height: int
) -> None:
    for change in (None, unfused):
        device.change = change
        check_exact(device, SourceCase(format, width, height, 4, 1).spec(), chain, frames=2)


class TestWholePictures(StatisticCases, EdgeCases):
    @pytest.fixture
    def device(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> EmulatedDevice:
        """Of many blocks: which of them comes first or last makes a difference."""
        return emulate(monkeypatch, program("c++"), folder, 30)


def test_windows_of_every_radius_are_exact(device: EmulatedDevice) -> None:
    for ksize in (1, 3, 5, 7, 19, 31):
        check(device, BGR8, f"gaussian_blur(ksize={ksize}) | gamma(gamma=1.2) | sharpen", ((1, 1), (33, 20)))


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_every_target_is_exact(device: EmulatedDevice, target: PixelFormat) -> None:
    for size in ((1, 1), (7, 18), (129, 17), (260, 34)):
        for format in (BGR8, GRAY8):
            check_target(device, SourceCase(format, *size, 4, 1).spec(), "sobel", target)
    check_target(device, SourceCase(I420, 63, 47).spec(), "", target)


def test_a_missing_barrier_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kernels import codegen

    broken = {name: text.replace("  mend_border", "  // mend_border") for name, text in codegen.headers().items()}
    stencil = broken["pinhole/stencil.cuh"]
    assert stencil.count("  __syncthreads();\n\n  const int quads") == 1
    broken["pinhole/stencil.cuh"] = stencil.replace("  __syncthreads();\n\n  const int quads", "  const int quads")
    monkeypatch.setattr("tests.kernels.emulator.headers", lambda: broken)
    device = emulate(monkeypatch, program("c++"), tmp_path)
    with pytest.raises(AssertionError):
        check(device, BGR8, "gaussian_blur(ksize=5)", ((64, 33),))


def test_a_write_behind_shared_memory_ends_the_process(folder: Path) -> None:
    script = f"""
import pytest
from pathlib import Path
from tests.kernels import test_emulated as t
import kernels.cuda_block as cuda_block
patch = pytest.MonkeyPatch()
device = t.emulate(patch, {program("c++")!r}, Path({str(folder)!r}))
if FEWER:
    enough = cuda_block.shared_bytes
    patch.setattr(cuda_block, "shared_bytes", lambda *args: enough(*args) * 3 // 4)
t.check(device, t.BGR8, "sobel", ((400, 35),))
"""
    for fewer, ends in ((False, 0), (True, -11)):
        done = subprocess.run(
            [sys.executable, "-c", script.replace("FEWER", str(fewer))], env={**os.environ, "PYTHONFAULTHANDLER": ""},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == ends, done.stderr


def test_parameters_change_between_frames(device: EmulatedDevice) -> None:
    """Windows, and so tiles and blocks, change on one executor: rows are still handed over."""
    from tests.kernels.cases import paint_random, run_sequence
    from tests.kernels.oracles import oracle_chain

    chains = [parse_chain(f"gaussian_blur(ksize={k}) | gamma(gamma={k / 4}) | sobel") for k in (3, 31, 1, 5, 19)]
    frames = [(chain, paint_random(seed)) for seed, chain in enumerate(chains)]
    for (chain, _), (source, result) in zip(
        frames, run_sequence(device, SourceCase(NV12, 200, 50).spec(), frames), strict=True
    ):
        assert (result == oracle_chain(source, chain)).all()
