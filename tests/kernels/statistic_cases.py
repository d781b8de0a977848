"""What executors do with what is found out of whole pictures: test classes take cases over and give a ``device``."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.device import Device
from kernels.formats import BGR8, GRAY8, NV12
from kernels.image import ImageSpec, ImageView
from kernels.plan import slot_source_spec
from tests.kernels.cases import Paint, SourceCase, check_exact, check_sequence
from tests.kernels.oracles_global import STATISTIC_ORACLES
from tests.kernels.temporal_cases import scenes

SIZES = ((1, 64), (129, 35))
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


def paint_spiral(view: ImageView) -> None:
    """A way from a corner to the middle in steps of 8 pixels, faint, but for its end."""
    cells = np.zeros((view.spec.height // 4, view.spec.width // 4), np.uint8)
    y = x = turn = 0
    down, right = 0, 1
    left = min(cells.shape) - 1
    while left > 0:
        for _ in range(left):
            cells[y, x] = 25
            y, x = y + down, x + right
        down, right = right, -down
        left -= 2 if turn and turn % 2 == 0 else 0
        turn += 1
    cells[y, x] = 100
    view.plane(0)[...] = 100
    view.plane(0)[: 4 * len(cells), : 4 * cells.shape[1]] += np.kron(cells, np.ones((4, 4), np.uint8))


class EdgeCases:
    def test_a_faint_spiral_hangs_together_with_its_end(self, device: Device) -> None:
        spec = ImageSpec.make(GRAY8, 203, 203)
        (made,) = check_sequence(device, spec, [("canny", paint_spiral)])
        (without_end,) = check_sequence(device, spec, [("canny(high=2040)", paint_spiral)])
        assert (made > 0).sum() > 4500, "one side of it"
        assert not without_end.any()

    def test_edges_are_exact_and_nothing_is_left_of_the_frame_before(self, device: Device) -> None:
        texts = ("canny", "canny(norm='l2')", "canny(low=300, high=20)", "canny(low=0, high=0)", "canny(low=2040)")
        for format in (BGR8, GRAY8):
            for size in ((1, 64), (131, 35)):
                frames = [(text, fading(size[0], number)) for number, text in enumerate((*texts, texts[0]))]
                for upto in range(1, len(frames) + 1):  # the last of each is compared
                    check_sequence(device, SourceCase(format, *size, 13, 3).spec(), frames[:upto])

    def test_edges_go_with_what_stands_around_them(self, device: Device) -> None:
        for format in (GRAY8, NV12):
            spec = SourceCase(format, 144, 37, 4, 1).spec()
            check_exact(device, spec, "sobel | canny(low=20, high=60) | dilate(ksize=3) | canny | flip", frames=3)


class StatisticCases:
    @pytest.mark.parametrize("name", STATISTIC_ORACLES)
    def test_the_values_of_the_frame_before_meet_the_parameters_of_this_one(self, device: Device, name: str) -> None:
        """Both ways by turns, and other parameters in between, on one executor."""
        previous = [f"{name}(statistic='previous')"] * 2
        previous += [f"{name}(statistic='previous', {values})" for values in OTHERS[name]]
        for format in (BGR8, GRAY8):
            for size in SIZES:
                texts = [*previous, name, *previous[:0:-1]]
                frames = [(text, fading(size[0], number)) for number, text in enumerate(texts)]
                check_sequence(device, SourceCase(format, *size, 13, 3).spec(), frames)

    def test_any_place_in_a_chain_has_a_statistic_of_its_own(self, device: Device) -> None:
        text = (
            "equalize_histogram(statistic='{a}') | sharpen | auto_contrast(statistic='{b}')"
            " | frame_difference | auto_contrast(statistic='{a}')"
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
