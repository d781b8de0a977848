"""Trying one op: a frame's whole way, what it leaves out is seen, and its CUDA text compiles for what it meets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels.chain import Chain, Step
from kernels.codegen import generate
from kernels.compiler import compile_cubin
from kernels.device import HostDevice
from kernels.errors import CompileError, InputError
from kernels.formats import GRAY8
from kernels.image import ImageSpec, Pixels
from kernels.op import OpParams, Scratch, TableOp, WindowOp
from kernels.plan import make_plan
from kernels.registry import find_op
from kernels.trial import POISON, compile_op, run_once


class Half(TableOp[OpParams]):
    """Forgets the lower half of the picture."""

    name = "half"
    Params = OpParams

    def table(self, params: OpParams) -> Pixels:
        return np.zeros(256, np.uint8)

    def run_cpu(self, src: Pixels, dst: Pixels, params: OpParams, scratch: Scratch) -> None:
        dst[: len(dst) // 2] = 0


def test_a_picture_goes_through_with_the_parameters_that_are_given() -> None:
    picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    np.testing.assert_array_equal(run_once(find_op("invert"), picture), 255 - picture)
    made = run_once(find_op("gain_offset"), picture[:, :, 0], {"offset": 7.0})
    np.testing.assert_array_equal(made, picture[:, :, 0] + 7)
    deep = np.arange(6, dtype=np.uint16).reshape(2, 3) * 1000
    np.testing.assert_array_equal(run_once(find_op("invert"), deep), 65535 - deep)
    assert run_once(find_op("rotate"), picture, {"degrees": 90}).shape == (3, 2, 3)
    assert run_once(find_op("grayscale"), picture).shape == (2, 3)


def test_pixels_that_an_op_leaves_out_are_seen() -> None:
    made = run_once(Half(), np.zeros((4, 5), np.uint8))
    assert not made[:2].any()
    assert (made[2:] == POISON).all()


def test_what_is_taken_is_given_back_also_after_a_refusal() -> None:
    device = HostDevice()
    run_once(find_op("invert"), np.zeros((4, 5), np.uint8), device=device)
    with pytest.raises(InputError, match="colormap, operation 1 of 1, takes pictures of 8 bits"):
        run_once(find_op("colormap"), np.zeros((4, 5), np.uint16), device=device)
    with pytest.raises(InputError, match=r"gain_offset\.gain"):
        run_once(find_op("gain_offset"), np.zeros((4, 5), np.uint8), {"gain": -1.0}, device)
    assert device.ledger.held("host") == 0


class OnlyGrey(WindowOp[OpParams]):
    """Compiles for one channel only."""

    name = "only_grey"
    Params = OpParams
    fixed_radius = 1
    cuda_source = """
struct only_grey_params {};
template <int CHANNELS> struct Grey;
template <> struct Grey<1> { static constexpr int VALUE = 1; };
template <template <int, int> class At, int CHANNELS, int RADIUS>
__device__ int only_grey(At<CHANNELS, RADIUS> at, const only_grey_params&) { return Grey<CHANNELS>::VALUE; }
template <template <int> class At, int CHANNELS>
__device__ int only_grey(At<CHANNELS> at, const only_grey_params&) { return Grey<CHANNELS>::VALUE; }
"""

    def constants(self, params: OpParams) -> bytes:
        return b""

    def run_cpu(self, src: Pixels, dst: Pixels, params: OpParams, scratch: Scratch) -> None:
        dst[...] = 1


def test_the_cuda_text_is_compiled_for_colour_and_grey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy", reason="needs the extra cuda12 or cuda13")
    monkeypatch.setenv("PINHOLE_CACHE_DIR", str(tmp_path))
    compile_op(find_op("sharpen"))
    grey = make_plan(Chain((Step(OnlyGrey(), OpParams()),)), ImageSpec.make(GRAY8, 64, 48))
    assert compile_cubin(generate(grey), "90")
    with pytest.raises(CompileError) as caught:
        compile_op(OnlyGrey())
    assert caught.value.op == "only_grey"
