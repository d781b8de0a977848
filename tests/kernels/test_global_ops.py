"""Ops that follow from a whole picture's values: both forms against oracles and OpenCV, and the largest pictures."""

from __future__ import annotations

import ctypes

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.chain import Step
from kernels.device import HostDevice
from kernels.image import Pixels
from kernels.local_tables import Regions, histogram
from kernels.op import LocalStatisticOp, Scratch, StatisticOp
from kernels.ops.otsu_threshold import otsu_level
from tests.kernels.host_statistics import STATISTIC_OPS, build
from tests.kernels.host_statistics import run as run_cuda_text
from tests.kernels.oracles import oracle_op
from tests.kernels.statistic_cases import EdgeCases, StatisticCases
from tests.kernels.strategies import extreme_steps
from tests.kernels.test_ops import check, noise, run, step_of
from tests.programs import program

pytestmark = pytest.mark.program("c++")

MOST_PIXELS = 16384 * 16384
STEPS = [step for step in extreme_steps() if step.op.name in STATISTIC_OPS]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(program("c++"), tmp_path_factory.mktemp("statistics"))


def shaped(height: int, width: int, channels: int, seed: int) -> Pixels:
    """A dull picture with a few values that stand out: two soft hills for each channel."""
    random = np.random.default_rng(seed)
    hills = random.normal(random.uniform(20, 120, channels), 12, (height, width, channels))
    hills[: height // 3] += random.uniform(30, 100)
    hills[0, : width // 5] = 250
    return np.clip(hills, 0, 255).astype(np.uint8).squeeze()


def tables_of(step: Step, counts: npt.NDArray[np.int64]) -> Pixels:
    assert isinstance(step.op, (StatisticOp, LocalStatisticOp))
    return step.op.tables(counts, step.params)


def check_both(library: ctypes.CDLL, step: Step, counts: npt.NDArray[np.int64]) -> None:
    expected = tables_of(step, counts)
    np.testing.assert_array_equal(run_cuda_text(library, step, counts), expected, str(step))


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_dull_pictures_are_exact_on_both_sides(library: ctypes.CDLL, step: Step, channels: int) -> None:
    for seed in range(3):
        picture = shaped(61, 83, channels, seed)
        check(step, picture)
        check_both(library, step, histogram(picture))


@settings(deadline=None)
@given(
    st.sampled_from(STEPS),
    st.sampled_from([1, 3]),
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 9)), min_size=1, max_size=9),
    st.integers(1, 900),
)
def test_any_few_values_are_exact_on_both_sides(
    library: ctypes.CDLL, step: Step, channels: int, values: list[tuple[int, int]], n: int
) -> None:
    picture = np.repeat([value for value, _ in values], [1 + n * share // 9 for _, share in values]).astype(np.uint8)
    picture = picture[None] if channels == 1 else np.stack([picture, picture[::-1], 255 - picture], axis=-1)[None]
    check(step, picture)
    check_both(library, step, histogram(picture))


@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_the_largest_pictures_do_not_overflow(library: ctypes.CDLL, step: Step, channels: int) -> None:
    """All in the greatest value; half and half at the ends; three quarters of it; one pixel; spread evenly."""
    for values in ({255: 1}, {0: 1, 255: 1}, {1: 1, 255: 3}, {254: 1, 255: 1}, dict.fromkeys(range(256), 1)):
        counts = np.zeros((channels, 256), np.int64)
        for value, share in values.items():
            counts[:, value] = MOST_PIXELS // sum(values.values()) * share
        check_both(library, step, counts)
        lopsided = counts.copy()
        lopsided[:, 0] += 1
        lopsided[:, counts[0].argmax()] -= 1
        check_both(library, step, lopsided)


@pytest.fixture
def device() -> HostDevice:
    return HostDevice()


class TestStatisticCases(StatisticCases):
    pass


class TestEdgeCases(EdgeCases):
    pass


def test_what_the_frame_before_held_decides_on_this_one() -> None:
    """The checker's own: half black, half at 100 part at 0; the same threshold then meets a frame that is all at 50."""
    step, scratch = step_of("otsu_threshold(statistic='previous')"), Scratch()
    halves = np.repeat(np.array([[0, 100]], np.uint8), 8, axis=0)
    flat = np.full((8, 2), 50, np.uint8)
    made = []
    for picture in (halves, flat, halves):
        made.append(run(step, picture, scratch))
        scratch.frames += 1
    assert made[0].tolist() == [[0, 255]] * 8
    assert (made[1] == 255).all(), "50 is above 0"
    assert made[2].tolist() == [[0, 255]] * 8, "a picture of one value parts at 0"


@pytest.mark.parametrize("clip_limit", [0.0, 0.5, 2.0, 37.123456, 256.0])
def test_the_tables_of_regions_are_the_same_on_both_sides_up_to_the_largest(
    library: ctypes.CDLL, clip_limit: float
) -> None:
    step, random = step_of(f"clahe(clip_limit={clip_limit})"), np.random.default_rng(8)
    histograms = [random.integers(0, 1 + size, 256) for size in (1, 9, 500, MOST_PIXELS >> 8)]
    for values in ({0: 1}, {255: 1}, {0: 1, 255: 1}, dict.fromkeys(range(256), 1), {7: 255, 200: 1}):
        counts = np.zeros(256, np.int64)
        for value, share in values.items():
            counts[value] = MOST_PIXELS // sum(values.values()) * share
        histograms.append(counts)
    for counts in histograms:
        check_both(library, step, counts[None])


def test_histograms_count_every_value_of_every_channel() -> None:
    picture = noise(37, 53, 3)
    counts = histogram(picture)
    for channel in range(3):
        assert counts[channel].tolist() == np.bincount(picture[:, :, channel].ravel(), minlength=256).tolist()
    # Beyond what a 32-bit float counts: 2^24 + 2^22 pixels of one value.
    assert histogram(np.full((1 << 10, 5 << 12), 9, np.uint8))[0, 9] == 5 << 22


def test_equalized_grey_is_opencvs_but_for_its_floats() -> None:
    for seed in range(6):
        picture = shaped(120, 160, 1, seed)
        difference = np.abs(run(step_of("equalize_histogram"), picture).astype(int) - cv2.equalizeHist(picture))
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.02


def test_otsus_thresholds_are_opencvs() -> None:
    for seed in range(6):
        picture = shaped(120, 160, 1, seed)
        for inverted, kind in ((False, cv2.THRESH_BINARY), (True, cv2.THRESH_BINARY_INV)):
            expected = cv2.threshold(picture, 0, 200, kind | cv2.THRESH_OTSU)[1]
            step = step_of(f"otsu_threshold(max_value=200, inverted={inverted})")
            np.testing.assert_array_equal(run(step, picture), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("size", "tiles"), [((120, 160), (8, 8)), ((121, 163), (8, 8)), ((90, 160), (4, 7))])
def test_local_contrast_is_opencvs_but_for_its_floats(
    size: tuple[int, int], tiles: tuple[int, int], channels: int
) -> None:
    """Where sizes divide evenly, and where one or both do not; colours by way of YCrCb, as users of OpenCV do it."""
    for limit in (1.0, 2.0, 2.5, 40.0, 0.0):
        picture = shaped(*size, channels, int(limit * 2))
        peer = cv2.createCLAHE(limit, tiles)
        step = step_of(f"clahe(clip_limit={limit}, tiles_x={tiles[0]}, tiles_y={tiles[1]})")
        made = run(step, picture).astype(int)
        if channels == 1:
            difference = np.abs(made - peer.apply(picture))
            assert (difference > 0).mean() < 0.15
            assert difference.max() <= (1 if 0 < limit < 40 else 2)
            assert (difference > 1).mean() < 1e-4
        else:
            parts = cv2.cvtColor(picture, cv2.COLOR_BGR2YCrCb)
            parts[:, :, 0] = peer.apply(np.ascontiguousarray(parts[:, :, 0]))
            # OpenCV rounds Cr and Cb on the way, and saturates the brightest of colours.
            difference = np.abs(made - cv2.cvtColor(parts, cv2.COLOR_YCrCb2BGR))
            assert np.quantile(difference, 0.99) <= 3


def test_a_region_beyond_the_picture_counts_its_reflection() -> None:
    picture = noise(7, 9, 1)
    padded = np.pad(picture, ((0, 5), (0, 1)), mode="reflect")  # to 12 rows and 10 columns: 6 by 5 regions
    counts = Regions(9, 7, 5, 6).histograms(picture)
    parts = [padded[y : y + 2, x : x + 2] for y in range(0, 12, 2) for x in range(0, 10, 2)]
    assert counts.tolist() == [np.bincount(part.ravel(), minlength=256).tolist() for part in parts]


@pytest.mark.parametrize(
    ("values", "threshold"),
    [
        ([(7, 5)], 0),
        ([(10, 3), (20, 3)], 10),  # every level from 10 to 19 parts them alike
        ([(10, 4), (20, 4), (30, 4)], 10),  # both gaps are alike: the lower one
        ([(0, 1), (255, 1)], 0),
    ],
)
def test_of_several_equal_thresholds_the_lowest_is_taken(values: list[tuple[int, int]], threshold: int) -> None:
    counts = np.zeros(256, np.int64)
    for value, count in values:
        counts[value] = count
    assert otsu_level(counts) == threshold
    assert otsu_level(counts * (1 << 24)) == threshold


def test_one_curve_for_all_channels_keeps_greys_grey_and_one_for_each_does_not() -> None:
    picture = shaped(40, 60, 3, 1)
    picture[5:9] = np.arange(60, dtype=np.uint8)[:, None]
    for name in ("equalize_histogram", "auto_contrast"):
        together = run(step_of(name), picture)[5:9]
        assert (together == together[:, :, :1]).all()
        each = run(step_of(f"{name}(channels='each')"), picture)[5:9]
        assert (each != each[:, :, :1]).any()


def test_contrast_reaches_both_ends_and_clips_as_much_as_it_may() -> None:
    picture = np.clip(np.random.default_rng(3).normal(120, 9, (100, 100)), 90, 150).astype(np.uint8)
    whole = run(step_of("auto_contrast(dark=0, bright=0)"), picture)
    assert (whole.min(), whole.max()) == (0, 255)
    clipped = run(step_of("auto_contrast(dark=10, bright=20)"), picture)
    low, high = picture[clipped == 0].max(), picture[clipped == 255].min()
    assert (picture < low).mean() <= 0.10 < (picture <= low).mean()
    assert (picture > high).mean() <= 0.20 < (picture >= high).mean()


def test_a_tinted_grey_scene_turns_grey_again_up_to_the_greatest_gain() -> None:
    greys = np.random.default_rng(5).integers(40, 160, (50, 50, 1))
    tinted = (greys * [0.6, 1.0, 1.4]).astype(np.uint8)
    balanced = run(step_of("auto_white_balance"), tinted)
    means = balanced.reshape(-1, 3).mean(axis=0)
    assert means.max() - means.min() < 1
    assert np.ptp(balanced.astype(int), axis=2).max() <= 3
    held = run(step_of("auto_white_balance(max_gain=1)"), tinted)
    np.testing.assert_array_equal(held[:, :, 0], tinted[:, :, 0])
    assert (held[:, :, 2] < tinted[:, :, 2]).all()
    grey = tinted[:, :, 0]
    np.testing.assert_array_equal(run(step_of("auto_white_balance"), grey), grey)


def test_the_comparison_sees_a_wrong_entry(library: ctypes.CDLL) -> None:
    step, picture = step_of("equalize_histogram"), shaped(30, 30, 1, 0)
    counts = histogram(picture)
    moved = np.roll(counts, 1)
    assert (run_cuda_text(library, step, counts) != tables_of(step, moved)).any()
    assert (oracle_op(step.op.name, picture, step.params.model_dump()) != picture).any()
