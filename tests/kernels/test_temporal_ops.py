"""What is said of the temporal ops beyond their oracles: neutral values, second opinions, what is remembered."""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np
import pytest

from kernels.chain import Step
from kernels.device import Device, HostDevice
from kernels.formats import BGR8
from kernels.image import ImageSpec, Pixels
from kernels.op import Scratch
from kernels.ops import background_subtraction, frame_difference, motion_heatmap, temporal_denoise
from tests.kernels.cases import check_sequence
from tests.kernels.oracles_temporal import TEMPORAL_ORACLES
from tests.kernels.temporal_cases import TemporalCases, scenes
from tests.kernels.test_ops import noise, run, step_of


@pytest.fixture
def device() -> Device:
    return HostDevice()


class TestTemporalCases(TemporalCases):
    pass


def run_frames(step: Step, pictures: Iterable[Pixels], scratch: Scratch | None = None) -> list[Pixels]:
    """What the op makes of pictures one after the other."""
    scratch = scratch or Scratch()
    made = []
    for picture in pictures:
        made.append(run(step, picture, scratch))
        scratch.frames += 1
    return made


def still(level: int, count: int, spread: float, size: tuple[int, int] = (60, 80)) -> list[Pixels]:
    """A grey wall, filmed with so much noise."""
    random = np.random.default_rng(level)
    return [np.clip(random.normal(level, spread, size).round(), 0, 255).astype(np.uint8) for _ in range(count)]


def test_a_difference_is_opencvs_and_black_at_first() -> None:
    pictures = [noise(31, 47, 3, seed) for seed in range(3)]
    made = run_frames(step_of("frame_difference(gain=1)"), pictures)
    assert (made[0] == 0).all()
    for before, now, result in zip(pictures, pictures[1:], made[1:], strict=False):
        np.testing.assert_array_equal(result, cv2.absdiff(now, before))


@pytest.mark.parametrize(
    ("gain", "change", "expected"), [(0, 9, 0), (0.5, 1, 1), (0.5, 2, 1), (2.5, 5, 13), (16, 16, 255)]
)
def test_b91_differences_round_half_up_and_saturate(gain: float, change: int, expected: int) -> None:
    pictures = [np.full((2, 3), value, np.uint8) for value in (100, 100 + change, 100)]
    made = run_frames(step_of(f"frame_difference(gain={gain})"), pictures)
    assert [int(result[0, 0]) for result in made] == [0, expected, expected]


@pytest.mark.parametrize("text", ["temporal_denoise(strength=0)", "temporal_denoise(threshold=0)"])
def test_without_strength_or_threshold_nothing_is_averaged(text: str) -> None:
    pictures = [noise(31, 47, 3, seed) for seed in range(3)]
    np.testing.assert_array_equal(run_frames(step_of(text), pictures), pictures)


def test_an_average_takes_as_much_noise_away_as_theory_says() -> None:
    """Variance (1 − s) / (1 + s) of the picture's, to which rounding to whole levels adds a twelfth."""
    for strength in (0.5, 0.8, 0.9):
        made = run_frames(step_of(f"temporal_denoise(strength={strength}, threshold=60)"), still(128, 60, 4.0))
        expected = 16 * (1 - strength) / (1 + strength) + 1 / 12
        assert abs(made[-1].astype(float).var() / expected - 1) < 0.1
        assert abs(made[-1].astype(float).mean() - 128) < 0.1


def test_what_moves_is_taken_as_it_is_and_what_stays_is_reached() -> None:
    step = step_of("temporal_denoise(strength=0.99, threshold=30)")
    flat = [np.full((3, 5), value, np.uint8) for value in (100, 130, 129, 70, 100)]
    assert [int(result[0, 0]) for result in run_frames(step, flat)] == [100, 130, 130, 70, 100]
    for strength, frames in ((0.5, 20), (0.99, 500)):
        for start, end in ((100, 101), (255, 241)):
            pictures = [np.full((2, 2), value, np.uint8) for value in [start] + [end] * frames]
            step = step_of(f"temporal_denoise(strength={strength}, threshold=255)")
            assert (run_frames(step, pictures)[-1] == end).all(), (strength, start, end)


def moving_square(count: int) -> tuple[list[Pixels], list[Pixels]]:
    """A noisy street with a square that crosses it from frame 30 on, and where the square is."""
    random = np.random.default_rng(1)
    street = cv2.GaussianBlur(random.integers(0, 256, (120, 160, 3), np.uint8), (0, 0), 4)
    pictures, truths = [], []
    for number in range(count):
        picture = np.clip(street + random.normal(0, 2, street.shape), 0, 255).astype(np.uint8)
        truth = np.zeros((120, 160), np.uint8)
        if number >= 30:
            left = 4 * (number - 30)
            picture[40:70, left : left + 30] = (40, 60, 220)
            truth[40:70, left : left + 30] = 255
        pictures.append(picture)
        truths.append(truth)
    return pictures, truths


def overlap(mask: Pixels, truth: Pixels) -> float:
    """Intersection over union."""
    return float(((mask > 0) & (truth > 0)).sum() / ((mask > 0) | (truth > 0)).sum())


def test_the_background_is_found_about_as_opencv_finds_it() -> None:
    pictures, truths = moving_square(60)
    made = run_frames(step_of("background_subtraction"), pictures)
    peer = cv2.createBackgroundSubtractorMOG2(varThreshold=16, detectShadows=False)
    theirs = [peer.apply(picture, learningRate=0.005).astype(np.uint8) for picture in pictures]
    assert sum((mask > 0).sum() for mask in made[:30]) < 0.001 * 30 * 120 * 160
    for mask, other, truth in list(zip(made, theirs, truths, strict=True))[30:]:
        assert set(np.unique(mask)) <= {0, 255}
        assert overlap(mask, truth) > 0.85
        assert overlap(mask, truth) > overlap(other, truth) - 0.1


def test_a_model_that_learns_nothing_stays_as_it_is() -> None:
    scratch = Scratch()
    pictures, _ = moving_square(50)
    run_frames(step_of("background_subtraction(learning_rate=0.02)"), pictures[:40], scratch)
    model = scratch.array("model", (8, 120, 160), np.uint16)
    weights = model[6:].astype(int)
    assert (weights[0] >= weights[1]).all()
    assert (32768 - weights.sum(axis=0) >= weights[0]).all(), "the heaviest is the first"
    assert ((model[3:6] >= 4 * 256) & (model[3:6] <= 75 * 256))[0].all()
    before = model.copy()
    run_frames(step_of("background_subtraction(learning_rate=0)"), pictures[40:], scratch)
    np.testing.assert_array_equal(model, before)


def test_a_light_that_blinks_is_background_once_both_are_known() -> None:
    pictures = [np.full((4, 4), 50 if number % 3 else 200, np.uint8) for number in range(90)]
    made = run_frames(step_of("background_subtraction(learning_rate=0.02)"), pictures)
    assert (np.array(made[1:4]) == 255).any()
    assert (np.array(made[60:]) == 0).all()


def test_nothing_is_drawn_where_nothing_moves_and_red_where_much_does() -> None:
    quiet = noise(20, 30, 3)
    loud = quiet.copy()
    loud[5:10, 5:10] ^= 255
    pictures = [quiet, quiet, loud, quiet] + [quiet] * 300
    made = run_frames(step_of("motion_heatmap(gain=16, opacity=1, decay=0.98, threshold=0)"), pictures)
    np.testing.assert_array_equal(made[1], quiet)
    hottest = cv2.applyColorMap(np.array([[255]], np.uint8), cv2.COLORMAP_TURBO)[0, 0]
    changed = cv2.absdiff(*(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY) for picture in (quiet, loud))) >= 16
    assert changed.sum() > 20
    assert (made[3][changed] == hottest).all()
    np.testing.assert_array_equal(
        made[3][~changed & (cv2.absdiff(quiet, loud).max(axis=2) == 0)],
        quiet[~changed & (cv2.absdiff(quiet, loud).max(axis=2) == 0)],
    )
    np.testing.assert_array_equal(made[-1], quiet)


def test_noise_up_to_the_threshold_makes_no_heat() -> None:
    pictures = [np.full((2, 2), value, np.uint8) for value in (100, 108, 100, 108)]
    made = run_frames(step_of("motion_heatmap(gain=16, threshold=8, opacity=1)"), pictures)
    assert [int(result[0, 0, 0]) for result in made] == [100, 108, 100, 108]
    made = run_frames(step_of("motion_heatmap(gain=16, threshold=7, opacity=1)"), pictures)
    assert (made[1] != made[0]).any()


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch, device: Device, rows: int) -> None:
    for module in (background_subtraction, motion_heatmap):
        monkeypatch.setattr(module, "_BAND_PIXELS", 29 * rows)
    for module in (frame_difference, temporal_denoise):
        monkeypatch.setattr(module, "_BAND_VALUES", 87 * rows)
    spec = ImageSpec.make(BGR8, 29, 23)
    for name in TEMPORAL_ORACLES:
        check_sequence(device, spec, scenes(spec, [name] * 5))


def test_the_comparison_sees_what_is_remembered_wrong(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    """The checker's own test: a value that is one off in what one frame leaves behind is seen in the next."""
    spec = ImageSpec.make(BGR8, 9, 7)
    op = step_of("frame_difference").op
    right = type(op).run_cpu

    def wrong(self: object, src: Pixels, dst: Pixels, params: object, scratch: Scratch) -> None:
        right(op, src, dst, params, scratch)
        if scratch.frames == 1:
            scratch.array("before", src.shape, np.uint8)[6, 8, 2] ^= 1

    monkeypatch.setattr(type(op), "run_cpu", wrong)
    check_sequence(device, spec, scenes(spec, ["frame_difference"] * 2))
    with pytest.raises(AssertionError, match="frame 2"):
        check_sequence(device, spec, scenes(spec, ["frame_difference"] * 3))
