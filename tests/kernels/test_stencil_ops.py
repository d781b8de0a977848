"""What the ops that read a window promise beyond their oracles: OpenCV as a second opinion, bands, refused values."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

from kernels.chain import parse_chain
from kernels.errors import InputError
from kernels.ops import adaptive_threshold, filter2d, unsharp_mask
from kernels.ops.filter2d import Filter2dParams, whole_weights
from kernels.smoothing import mean_constants
from tests.kernels.test_ops import check, noise, run, step_of

PICTURE = noise(40, 53, 3)


def inside(picture: Any, radius: int) -> Any:
    """Where no window reaches the border."""
    return picture[radius:-radius, radius:-radius]


def test_b90_filter2d_is_opencvs_correlation_edges_included() -> None:
    """An impulse in each corner and in the middle, and weights that are the same in no direction."""
    rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    picture = np.zeros((7, 9), np.uint8)
    picture[0, 0] = picture[-1, 0] = picture[0, -1] = picture[-1, -1] = picture[3, 4] = 20
    expected = cv2.filter2D(picture, -1, np.array(rows, np.float64), borderType=cv2.BORDER_REFLECT_101)
    np.testing.assert_array_equal(run(step_of(f"filter2d(weights={rows})"), picture), expected)


@pytest.mark.parametrize("shape", [(1, 1), (1, 15), (15, 1), (3, 5), (9, 15), (11, 11), (15, 9), (13, 13), (15, 15)])
def test_b89_whole_weights_of_every_shape_are_opencvs_saturated(shape: tuple[int, int]) -> None:
    weights = np.random.default_rng(shape).integers(-9, 10, shape)
    exact = cv2.filter2D(PICTURE.astype(np.float64), -1, weights.astype(np.float64), borderType=cv2.BORDER_REFLECT_101)
    result = run(step_of(f"filter2d(weights={weights.tolist()}, offset=-7)"), PICTURE)
    # Large windows go over Fourier transforms there: whole numbers but for a small error.
    np.testing.assert_array_equal(result, np.clip(np.rint(exact) - 7, 0, 255).astype(np.uint8))


def test_b89_sums_of_white_saturate() -> None:
    white = np.full((5, 7), 255, np.uint8)
    assert (run(step_of("filter2d(weights=[[1, 1, 1]])"), white) == 255).all()
    assert (run(step_of("filter2d(weights=[[-1, -1, -1]])"), white) == 0).all()
    assert (run(step_of("filter2d(weights=[[1, -2, 1]], offset=128)"), white) == 128).all()


@pytest.mark.parametrize(
    "weights", [[[1] * 15] * 15, [[1, 2, 1]], [[-1, 0, -1]], [[0.1], [0.1], [0.1]], [[1000, -1, 7]], [[3, 1, -1]]]
)
def test_b92_normalized_weights_keep_flat_areas(weights: list[list[float]]) -> None:
    step = step_of(f"filter2d(weights={weights}, normalize=True)")
    for value in (0, 1, 127, 254, 255):
        flat = np.full((17, 19), value, np.uint8)
        np.testing.assert_array_equal(run(step, flat), flat)


def test_weights_of_sum_zero_stay_as_they_are() -> None:
    values = Filter2dParams(weights=((1, -2, 1),), normalize=True)
    weights, shift = whole_weights(values)
    assert (weights * 1.0 / (1 << shift)).tolist() == [[1, -2, 1]]


def test_weights_are_as_fine_as_their_sum_allows() -> None:
    for weights, shift in (([[1 / 9] * 3] * 3, 13), ([[1.0]], 13), ([[16384.0 / 16] * 4 + [0.0]] * 1, 2)):
        found, k = whole_weights(Filter2dParams(weights=tuple(tuple(min(w, 1000.0) for w in row) for row in weights)))
        assert k >= shift
        assert 510 * (int(np.abs(found.astype(int)).sum()) + (1 << k)) < 1 << 24


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("weights=[[1, 2], [3, 4]]", "odd number of rows and of columns"),
        ("weights=[[1, 2, 3], [3, 4, 5]]", "odd number of rows and of columns"),
        ("weights=[[1, 2, 3], [4], [5, 6, 7]]", "rows of the same length"),
        (f"weights={[[1000] * 5] * 5}", "add up to more than 16384"),
        ("weights=[[1000, -999.99, 0]], normalize=True", "divided by their sum"),
        ("weights=[]", "at least 1"),
        ("weights=[[]]", "at least 1"),
        (f"weights={[[1]] * 17}", "at most 15"),
        ("weights=[[1001]]", "less than or equal to 1000"),
        ("weights=[1]", "list"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(values: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_chain(f"filter2d({values})")


@pytest.mark.parametrize(
    "text",
    [
        "median(ksize=257)", "median(ksize=4)", "median(ksize=1)", "box_blur(ksize=33)", "box_blur(ksize=2)",
        "unsharp_mask(ksize=1)", "adaptive_threshold(ksize=6)", "laplacian(ksize=2)", "laplacian(ksize=5)",
    ],
)  # fmt: skip
def test_b116_windows_that_there_are_not_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InputError, match=r"integer, \d+ to \d+ in steps of 2"):
        parse_chain(text)


@pytest.mark.parametrize("ksize", [3, 5])
def test_medians_are_opencvs_inside(ksize: int) -> None:
    result = run(step_of(f"median(ksize={ksize})"), PICTURE)
    np.testing.assert_array_equal(inside(result, ksize // 2), inside(cv2.medianBlur(PICTURE, ksize), ksize // 2))


@pytest.mark.parametrize("ksize", range(1, 32, 2))
def test_every_mean_is_exact_for_every_sum(ksize: int) -> None:
    """The division by multiplication, in Python's numbers; sums next to a change of the result, and some between."""
    for whole in {ksize**2, 256**2}:
        half, reciprocal = np.frombuffer(mean_constants(whole), np.uint32).tolist()
        edges = whole * np.arange(255) + whole // 2
        for total in [0, 255 * whole, *(int(edge) + near for edge in edges for near in (-1, 0, 1, 2))]:
            assert (total + half) * reciprocal < 1 << 64
            assert (total + half) * reciprocal >> 31 == (2 * total + whole) // (2 * whole)


@pytest.mark.parametrize("ksize", range(1, 32, 2))
def test_every_box_blur_is_exact(ksize: int) -> None:
    check(step_of(f"box_blur(ksize={ksize})"), noise(37, 41, 3))
    check(step_of(f"box_blur(ksize={ksize})"), noise(64, 9, 1))


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("offset", [-300, -7, -1, 0, 1, 2, 9])
def test_adaptive_thresholds_are_opencvs_inside(offset: int, inverted: bool) -> None:
    offset = max(offset, -255)
    grey, kind = PICTURE[:, :, 1].copy(), cv2.THRESH_BINARY_INV if inverted else cv2.THRESH_BINARY
    expected = cv2.adaptiveThreshold(grey, 199, cv2.ADAPTIVE_THRESH_MEAN_C, kind, 11, offset)
    result = run(step_of(f"adaptive_threshold(offset={offset}, max_value=199, inverted={inverted})"), grey)
    np.testing.assert_array_equal(inside(result, 5), inside(expected, 5))


def test_an_unsharp_mask_without_an_amount_or_above_its_threshold_changes_nothing() -> None:
    for text in ("unsharp_mask(amount=0)", "unsharp_mask(threshold=255)", "unsharp_mask(amount=0, threshold=9)"):
        np.testing.assert_array_equal(run(step_of(text), PICTURE), PICTURE)


def test_an_unsharp_mask_is_the_usual_formula_within_a_level() -> None:
    result = run(step_of("unsharp_mask(ksize=9, sigma=2, amount=1.5)"), PICTURE)
    values = PICTURE.astype(np.float64)
    blurred = cv2.GaussianBlur(values, (9, 9), 2, borderType=cv2.BORDER_REFLECT_101)
    real = np.clip(values + 1.5 * (values - blurred), 0, 255)
    # The blur's taps are in 1/256 and its result is rounded: 1.5 times as far away at most.
    assert np.abs(result - real).max() <= 3


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (filter2d, f"filter2d(weights={np.random.default_rng(1).integers(-9, 9, (15, 13)).tolist()})"),
        (unsharp_mask, "unsharp_mask(ksize=7, amount=2.3, threshold=3)"),
        (adaptive_threshold, "adaptive_threshold(ksize=7, max_value=100)"),
    ],
)
@pytest.mark.parametrize("band_values", [1, 29 * 3 * 2, 29 * 3 * 7, 1 << 20])
def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch, module: Any, text: str, band_values: int) -> None:
    monkeypatch.setattr(module, "_BAND_VALUES", band_values)
    for height in (1, 2, 7, 8, 31):
        check(step_of(text), noise(height, 29, 3))
