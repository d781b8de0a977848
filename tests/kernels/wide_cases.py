"""Checks of pictures of 16 bits that take any device, so that tests/gpu runs the same ones on CUDA."""

from __future__ import annotations

from itertools import product
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st

from kernels.chain import Chain, Step, parse_chain
from kernels.device import Device
from kernels.formats import BGR8, BGR16, GRAY8, GRAY16, PixelFormat
from kernels.image import ImageSpec, ImageView
from kernels.plan import slot_source_spec
from kernels.registry import all_ops, find_op
from tests.kernels.cases import SourceCase, check_exact, check_sequence, paint_random, paint_scene
from tests.kernels.strategies import exact_steps, extreme_steps
from tests.kernels.targets import TARGETS, check_target

WIDE_OPS = [name for name, op in all_ops().items() if op.takes_16_bit]
WIDE_STEPS = [step for step in extreme_steps() if step.op.name in WIDE_OPS]
WIDE_FORMATS = (GRAY16, BGR16)
BOTH_DEPTHS = pytest.mark.parametrize("format", WIDE_FORMATS, ids=str)
# Where a tile, a segment of the ingest, a word or the picture ends; rows that are whole words, and rows that are not.
WHOLE_SIZES = ((64, 33), (400, 35), (8, 3))
ODD_SIZES = ((1, 1), (3, 2), (17, 19), (131, 37), (257, 18))

WIDE_CHAINS = (
    "invert | gamma(gamma=2.2) | gain_offset(gain=1.5, offset=-20.5) | threshold(threshold=90, max_value=200)",
    "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sharpen",
    "white_balance(red=1.7, blue=0.6) | saturation(factor=1.8) | grayscale | sobel | erode(ksize=5)",
    "levels(black=10, white=200, bits=12) | gamma(gamma=1.5) | sobel | colormap",
    "gaussian_blur(ksize=31) | levels | gaussian_blur(ksize=31) | invert",
    "sobel | gamma | levels(black=3.5) | invert | median(ksize=5) | bilateral",
    "flip | gamma(gamma=0.5) | unsharp_mask(amount=2) | resize(width=90, interpolation='cubic') | invert",
    "resize(width=77, height=31, interpolation='area') | levels | overlay_text | rotate(degrees=90)",
    "temporal_denoise | frame_difference(gain=3.3) | open(ksize=5) | temporal_denoise(strength=0.5) | levels",
    "levels(bits=10) | levels(black=20) | equalize_histogram | motion_heatmap",
)


@st.composite
def wide_chains(draw: st.DrawFn) -> Chain:
    """Steps that take 16 bits, then perhaps ``levels`` and any behind it."""
    wide = exact_steps.filter(lambda step: step.op.takes_16_bit and step.op.name != "levels")
    steps = draw(st.lists(wide, max_size=4))
    if draw(st.booleans()):
        levels = exact_steps.filter(lambda step: step.op.name == "levels")
        steps += [draw(levels), *draw(st.lists(exact_steps, max_size=2))]
    return Chain(tuple(steps))


class WideCases:
    # A text of each chain instead of four: for a device on which compiling one takes a second.
    sparse: ClassVar[bool] = False

    @pytest.mark.parametrize("chain", WIDE_CHAINS, ids=lambda text: text[:40] or "empty")
    def test_chains_of_16_bits_are_exact(self, device: Device, chain: str) -> None:
        cases = list(product(WIDE_FORMATS, (ODD_SIZES, WHOLE_SIZES)))
        if self.sparse:
            cases = [cases[WIDE_CHAINS.index(chain) % 4]]
        for format, sizes in cases:
            for index, size in enumerate(sizes):
                layout = ((1, 0), (13, 3), (64, 0))[index % 3]
                check_exact(device, SourceCase(format, *size, *layout).spec(), chain, frames=3)

    @pytest.mark.parametrize("target", TARGETS, ids=str)
    def test_targets_of_16_bits_are_exact(self, device: Device, target: PixelFormat) -> None:
        for size in ((1, 1), (7, 18), (129, 17), (260, 34)):
            for format, chain in zip(WIDE_FORMATS, ("", "sobel"), strict=True):
                check_target(device, SourceCase(format, *size, 4, 1).spec(), chain, target)

    @pytest.mark.parametrize(("wide", "narrow"), [(GRAY16, GRAY8), (BGR16, BGR8)], ids=str)
    def test_8_bits_times_257_through_levels_are_those_8_bits(
        self, device: Device, wide: PixelFormat, narrow: PixelFormat
    ) -> None:
        spec = ImageSpec.make(narrow, 131, 37)

        def paint(view: ImageView) -> None:
            eight = ImageView(spec, np.empty(spec.nbytes, np.uint8))
            paint_random(5)(eight)
            view.plane(0)[...] = eight.plane(0).astype(np.uint16) * 257

        eight = ImageView(spec, np.empty(spec.nbytes, np.uint8))
        paint_random(5)(eight)
        made = check_exact(device, ImageSpec.make(wide, 131, 37), "levels", paint)
        assert made.dtype == np.uint8
        np.testing.assert_array_equal(made, eight.plane(0))

    @pytest.mark.parametrize("bits", [10, 12, 14, 16])
    def test_levels_takes_the_bits_that_a_camera_fills(self, device: Device, bits: int) -> None:
        greatest = 2**bits - 1

        def paint(view: ImageView) -> None:
            view.plane(0)[...] = np.linspace(0, greatest, view.spec.width).round().astype(np.uint16)

        made = check_exact(device, ImageSpec.make(GRAY16, 256, 3), f"levels(bits={bits})", paint)
        np.testing.assert_array_equal(made[0], np.arange(256))

    def test_parameters_of_16_bits_change_between_frames(self, device: Device) -> None:
        """Tables too, which lie behind the parameters of ops in the plan's block."""
        spec = slot_source_spec(ImageSpec.make(BGR16, 200, 50))
        text = "gamma(gamma={k}) | gaussian_blur(ksize={k}) | threshold(threshold={k}) | levels(black={k}) | sobel"
        frames = [(parse_chain(text.format(k=k)), paint_scene(3, k)) for k in (3, 9, 1, 5, 7)]
        for chain, paint in frames:
            check_exact(device, spec, chain, paint)
        check_sequence(device, spec, frames)


def refused() -> list[Step]:
    """The ops that take 8 bits only, as they are by default."""
    return [Step(find_op(name, ""), op.Params()) for name, op in all_ops().items() if not op.takes_16_bit]
