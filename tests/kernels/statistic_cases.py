"""What every executor does with statistics of the frame before: a test class takes these over and gives its ``device``.

Each frame of a sequence is compared with oracles that have seen the frames before.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels.device import Device
from kernels.formats import BGR8, GRAY8, NV12
from kernels.image import ImageSpec, ImageView
from kernels.plan import slot_source_spec
from tests.kernels.cases import Paint, SourceCase, check_sequence
from tests.kernels.oracles_global import STATISTIC_ORACLES
from tests.kernels.temporal_cases import scenes

SIZES = ((1, 1), (1, 64), (129, 35))
# As it is, then other values beside it, from frame to frame.
OTHERS = {
    "auto_contrast": ("dark=20", "bright=30", "channels='each'"),
    "auto_white_balance": ("max_gain=1.5", "max_gain=16"),
    "clahe": ("clip_limit=4", "tiles_x=3, tiles_y=2", "clip_limit=1, tiles_x=3, tiles_y=2"),
    "equalize_histogram": ("channels='each'", "channels='each'"),
    "otsu_threshold": ("max_value=200", "inverted=True"),
}


def fading(seed: int, number: int) -> Paint:
    """Noise around another level in each frame."""

    def paint(view: ImageView) -> None:
        random = np.random.default_rng((seed, number))
        for plane in view.planes:
            plane[...] = np.clip(random.normal(60 + number * 50 % 140, 25, plane.shape), 0, 255)

    return paint


class StatisticCases:
    @pytest.mark.parametrize("name", STATISTIC_ORACLES)
    def test_the_values_of_the_frame_before_meet_the_parameters_of_this_one(self, device: Device, name: str) -> None:
        """Both ways by turns, and other parameters in between, on one executor."""
        previous = [f"{name}(statistic='previous')"] * 2
        previous += [f"{name}(statistic='previous', {values})" for values in OTHERS[name]]
        for format in (BGR8, GRAY8):
            for size in SIZES:
                texts = [*previous, name, *previous[::-1], name]
                frames = [(text, fading(size[0], number)) for number, text in enumerate(texts)]
                check_sequence(device, SourceCase(format, *size, 13, 3).spec(), frames)

    def test_any_place_in_a_chain_has_a_statistic_of_its_own(self, device: Device) -> None:
        text = (
            "gaussian_blur(ksize=3) | equalize_histogram(statistic='{a}') | sharpen | otsu_threshold(statistic='{b}')"
            " | flip | frame_difference | auto_contrast(statistic='{b}') | auto_contrast(statistic='{a}')"
        )
        ways = [("previous", "frame"), ("previous", "previous"), ("frame", "previous"), ("previous", "previous")]
        for size in ((1, 1), (144, 37)):
            spec = slot_source_spec(ImageSpec.make(NV12, *size))
            check_sequence(device, spec, scenes(spec, [text.format(a=a, b=b) for a, b in ways]))

    def test_another_size_counts_anew_and_so_does_the_first_size_again(self, device: Device) -> None:
        spec = ImageSpec.make(BGR8, 64, 48)
        made = []
        for width in (50, 33, 50):
            texts = [f"resize(width={width}) | auto_contrast(statistic='previous')"] * 3
            made.append(check_sequence(device, spec, scenes(spec, texts)))
        np.testing.assert_array_equal(made[2], made[0])
