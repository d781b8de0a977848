"""The CPU form of every op against the integer oracles; what is said of one op is at the end."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import stencil_cpu
from kernels.chain import Step, parse_chain
from kernels.image import Pixels, Shape
from kernels.op import MAX_RADIUS_PX, OpKind, Scratch, TableOp, TemporalOp
from kernels.ops.gaussian_blur import GaussianBlur, GaussianBlurParams
from kernels.registry import all_ops
from tests.kernels.cases import POISON, STALE
from tests.kernels.field_cases import KEEP_CONSTANTS
from tests.kernels.oracles import ORACLES, assert_agrees, oracle_op
from tests.kernels.oracles_stencil import gaussian_taps
from tests.kernels.strategies import DRAWING_OPS, extreme_steps, op_params, pairwise, short, steps

TABLE_OPS = {name: op for name, op in all_ops().items() if isinstance(op, TableOp)}
SIZES = ((1, 1), (1, 64), (64, 1), (2, 2), (3, 1), (1, 3), (7, 7), (97, 131), (131, 97), (49, 33), (48, 5), (97, 5))


def noise(height: int, width: int, channels: int, seed: int = 0) -> Pixels:
    """Half noise, half black and white; (H, W) for one channel."""
    random = np.random.default_rng((seed, height, width, channels))
    shape = (height, width) if channels == 1 else (height, width, channels)
    values = random.integers(0, 256, shape, np.uint8)
    picture: Pixels = np.where(random.integers(0, 2, shape, np.uint8) == 1, values, values // 128 * 255)
    return picture


def padded(picture: Pixels, fill: int) -> tuple[Pixels, Pixels]:
    """A buffer full of ``fill`` and, in it, room for the picture with padded rows at an odd address."""
    return room(picture.shape, fill)


def room(shape: tuple[int, ...], fill: int) -> tuple[Pixels, Pixels]:
    """A buffer full of ``fill`` and, in it, a picture with padded rows at an odd address."""
    stride = math.prod(shape[1:]) + 5
    buffer = np.full(3 + stride * shape[0], fill, np.uint8)
    strides = (stride, 1) if len(shape) == 2 else (stride, shape[2], 1)
    return buffer, np.ndarray(shape, np.uint8, buffer, 3, strides)


def result_shape(step: Step, picture: Pixels) -> tuple[int, ...]:
    """(H, W) or (H, W, 3) of what the op makes of a picture."""
    shape = Shape(picture.shape[1], picture.shape[0], 1 if picture.ndim == 2 else 3)
    made = step.op.output(shape, step.params)
    return (made.height, made.width) if made.channels == 1 else (made.height, made.width, 3)


def run(step: Step, picture: Pixels, scratch: Scratch | None = None) -> Pixels:
    """The op from a padded source into a padded, stale destination; asserts that nothing else was written."""
    source_buffer, source = padded(picture, POISON)
    source[...] = picture
    before = source_buffer.copy()
    buffer, destination = room(result_shape(step, picture), STALE)
    step.op.run_cpu(source, destination, step.params, scratch or Scratch())
    np.testing.assert_array_equal(source_buffer, before, "the source was written")
    result: Pixels = destination.copy()
    destination[...] = STALE
    assert (buffer == STALE).all(), "written beside the destination"
    return result


def check(step: Step, picture: Pixels) -> Pixels:
    result = run(step, picture)
    assert_agrees(result, oracle_op(step.op.name, picture, step.params.model_dump()), [step.op.name], str(step))
    return result


def step_of(text: str) -> Step:
    return parse_chain(text).steps[0]


def test_every_op_has_an_oracle() -> None:
    assert set(ORACLES) == set(all_ops())


@pytest.mark.parametrize("step", extreme_steps(), ids=short)
@pytest.mark.parametrize("channels", [1, 3])
def test_b127_every_op_at_its_extremes_is_exact_at_every_size(step: Step, channels: int) -> None:
    for height, width in SIZES:
        check(step, noise(height, width, channels))


@pytest.mark.parametrize("name", all_ops())
@pytest.mark.parametrize("channels", [1, 3])
def test_defaults_are_exact_on_a_whole_picture(name: str, channels: int) -> None:
    check(Step(all_ops()[name], all_ops()[name].Params()), noise(479, 641, channels))


@settings(deadline=None)
@given(steps, st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]), st.integers(0, 9))
def test_any_parameters_are_exact(step: Step, height: int, width: int, channels: int, seed: int) -> None:
    check(step, noise(height, width, channels, seed))


@settings(deadline=None)
@given(steps, st.integers(0, 255), st.sampled_from([(1, 1), (5, 3), (60, 41), (41, 60, 3)]))
def test_b92_constants_stay_constant(step: Step, value: int, shape: tuple[int, ...]) -> None:
    picture = np.full(shape, value, np.uint8)
    result = check(step, picture)
    assert (result == result[0, 0]).all() or step.op.name in DRAWING_OPS
    if step.op.name in KEEP_CONSTANTS:
        assert (result == value).all()


@settings(deadline=None)
@given(steps)
def test_the_radius_covers_all_that_is_read(step: Step) -> None:
    """Changing one pixel changes nothing farther away than the radius says; an op that reads anywhere has none."""
    radius = step.op.radius(step.params)
    assert 0 <= radius <= MAX_RADIUS_PX
    assert radius == 0 or step.op.kind is OpKind.STENCIL
    if step.op.kind in (OpKind.GATHER, OpKind.GLOBAL):
        return
    size = 4 * MAX_RADIUS_PX + 1
    flat = np.full((size, size), 100, np.uint8)
    dot = flat.copy()
    dot[size // 2, size // 2] = 255
    rows, columns = np.nonzero(run(step, flat) != run(step, dot))[:2]
    if len(rows):
        assert max(abs(rows - size // 2).max(), abs(columns - size // 2).max()) <= radius


def test_b90_windows_equal_opencvs_correlation_with_reflect_101() -> None:
    """OpenCV's general filter in 64-bit floats, exact here, is a second opinion on borders and directions."""
    picture = noise(40, 53, 3)
    for ksize, sigma in ((3, 0.0), (5, 0.0), (9, 0.0), (11, 0.0), (31, 6.5)):
        taps = np.array(gaussian_taps(ksize, sigma)) / 256.0
        exact = cv2.sepFilter2D(picture.astype(np.float64), -1, taps, taps, borderType=cv2.BORDER_REFLECT_101)
        result = run(step_of(f"gaussian_blur(ksize={ksize}, sigma={sigma})"), picture)
        np.testing.assert_array_equal(result, np.floor(exact + 0.5).astype(np.uint8))
    kernel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float64)
    gx = cv2.filter2D(picture.astype(np.float64), -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    gy = cv2.filter2D(picture.astype(np.float64), -1, kernel.T, borderType=cv2.BORDER_REFLECT_101)
    expected = np.minimum(np.abs(gx) + np.abs(gy), 255).astype(np.uint8)
    np.testing.assert_array_equal(run(step_of("sobel"), picture), expected)
    kernel = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float64)
    exact = cv2.filter2D(picture.astype(np.float64), -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    np.testing.assert_array_equal(run(step_of("sharpen"), picture), np.clip(exact, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("name", TABLE_OPS)
@settings(deadline=None)
@given(data=st.data())
def test_b91_tables_rise_or_fall_and_never_wrap(name: str, data: st.DataObject) -> None:
    op = TABLE_OPS[name]
    table = op.table(data.draw(op_params(op)))
    assert table.dtype == np.uint8
    assert table.shape == (256,)
    steps_up = np.diff(table.astype(int))
    assert (steps_up >= 0).all() or (name in ("invert", "threshold") and (steps_up <= 0).all())


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("gain_offset(offset=50)", 250, 255),
        ("gain_offset(gain=2)", 128, 255),
        ("gain_offset(gain=1.1)", 255, 255),
        ("gain_offset(gain=16, offset=255)", 255, 255),
        ("gain_offset(offset=100)", 200, 255),
        ("gain_offset(offset=-100)", 50, 0),
        ("gain_offset(gain=0.5)", 1, 1),
        ("gain_offset(gain=0.5)", 2, 1),
        ("gain_offset(gain=0.5)", 3, 2),
        ("gain_offset(offset=-0.5)", 1, 1),
        ("gain_offset(offset=0.4999)", 7, 7),
        ("gain_offset(offset=0.5)", 7, 8),
        ("gamma(gamma=0.5)", 255, 255),
        ("gamma(gamma=10)", 0, 0),
        ("gamma(gamma=2)", 64, 128),
        ("gamma(gamma=0.5)", 128, 64),
        ("gamma(gamma=2.2)", 1, 21),
        ("invert", 0, 255),
        ("invert", 200, 55),
        ("threshold(threshold=100)", 100, 0),
        ("threshold(threshold=100)", 101, 255),
        ("threshold(threshold=255)", 255, 0),
        ("threshold(threshold=0, max_value=7)", 1, 7),
        ("threshold(threshold=100, max_value=9, inverted=True)", 100, 9),
        ("threshold(threshold=100, max_value=9, inverted=True)", 101, 0),
        ("sharpen", 255, 255),
    ],
)
def test_b89_b91_b95_point_ops_round_half_up_and_saturate(text: str, value: int, expected: int) -> None:
    assert run(step_of(text), np.full((3, 5), value, np.uint8)).tolist() == [[expected] * 5] * 3


@pytest.mark.parametrize(
    "text",
    [
        "gamma(gamma=1)", "gain_offset(gain=1, offset=0)", "gaussian_blur(ksize=1)", "grayscale", "resize",
        "resize(width=16)", "resize(height=16, interpolation='area')", "resize(width=16, interpolation='nearest')",
    ],
)  # fmt: skip
def test_neutral_parameters_change_nothing(text: str) -> None:
    picture = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(run(step_of(text), picture), picture)


def test_grey_is_opencvs_for_colours_of_every_kind() -> None:
    """All greens and reds with 18 blues; the whole cube was compared once."""
    for blue in range(0, 256, 15):
        picture = np.empty((256, 256, 3), np.uint8)
        picture[:, :, 0] = blue
        picture[:, :, 1], picture[:, :, 2] = np.arange(256)[:, None], np.arange(256)
        np.testing.assert_array_equal(check(step_of("grayscale"), picture), cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY))


def test_grey_of_grey_colours_is_unchanged() -> None:
    greys = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(run(step_of("grayscale"), np.stack([greys] * 3, axis=-1)), greys)


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("threshold", [0, 1, 127, 254, 255])
def test_thresholds_are_opencvs(threshold: int, inverted: bool) -> None:
    picture = noise(31, 47, 3)
    kind = cv2.THRESH_BINARY_INV if inverted else cv2.THRESH_BINARY
    expected = cv2.threshold(picture, threshold, 199, kind)[1]
    text = f"threshold(threshold={threshold}, max_value=199, inverted={inverted})"
    np.testing.assert_array_equal(run(step_of(text), picture), expected)


@pytest.mark.parametrize("ksize", range(1, 32, 2))
def test_blur_taps_are_the_definitions_and_opencvs(ksize: int) -> None:
    """Against the definition and, through an impulse on a line one pixel high, against OpenCV itself."""
    op = GaussianBlur()
    for sigma in (0.0, 1e-300, 1e-3, 0.05, 0.051, 0.3, 0.5, 0.8, 1.0, 1.1, 2.0, 3.3, 7.5, 20.0, 50.0):
        taps = op.taps(GaussianBlurParams(ksize=ksize, sigma=sigma)).astype(int)
        assert taps.tolist() == gaussian_taps(ksize, sigma)
        assert taps.sum() == 256
        assert (taps == taps[::-1]).all()
        ramp = np.zeros((1, 2 * ksize + 1), np.uint8)
        ramp[0, ksize] = 255
        expected = np.zeros(2 * ksize + 1, int)
        expected[ksize - ksize // 2 : ksize + ksize // 2 + 1] = (taps * 256 * 255 + 32768) >> 16
        assert run(step_of(f"gaussian_blur(ksize={ksize}, sigma={sigma})"), ramp)[0].tolist() == expected.tolist()


@pytest.mark.parametrize("band_rows", [1, 2, 3, 7, 48])
@pytest.mark.parametrize("height", [1, 2, 3, 47, 48, 49, 96, 97])
def test_bands_of_the_gradients_do_not_show(monkeypatch: pytest.MonkeyPatch, band_rows: int, height: int) -> None:
    monkeypatch.setattr(stencil_cpu, "BAND_ROWS", band_rows)
    for text in ("sobel", "scharr", "laplacian", "laplacian(ksize=3)"):
        check(step_of(text), noise(height, 29, 3))


def test_the_ops_scratch_is_small_and_made_once() -> None:
    """All that an op keeps beside the frame is far less than a frame or a map; later frames make nothing."""
    picture = noise(720, 1280, 3)
    for op in all_ops().values():
        scratch = Scratch()
        if isinstance(op, TemporalOp):
            run(Step(op, op.Params()), picture, scratch)
            scratch.frames = 1
        run(Step(op, op.Params()), picture, scratch)
        buffers = dict(scratch._buffers)
        # A map of points is state, not a copy of a frame: 6 bytes a pixel. So is what is remembered, as on the device.
        most = 2 * picture.nbytes if any(".map" in name for name in buffers) else picture.nbytes // 2
        if isinstance(op, TemporalOp):
            most += op.state_bytes(3) * picture[:, :, 0].size
        assert sum(buffer.nbytes for buffer in buffers.values()) <= most, op.name
        run(Step(op, op.Params()), picture, scratch)
        assert {name: id(buffer) for name, buffer in scratch._buffers.items()} == {
            name: id(buffer) for name, buffer in buffers.items()
        }


def test_scratch_reuses_grows_and_retypes_a_buffer_by_name() -> None:
    scratch = Scratch()
    first = scratch.array("a", (4, 6), np.int16)
    assert scratch.array("a", (4, 6), np.int16) is first
    smaller: Any = scratch.array("a", (3, 5), np.uint8)
    assert smaller.shape == (3, 5)
    assert smaller.dtype == np.uint8
    assert np.shares_memory(smaller, first)
    larger = scratch.array("a", (100, 6), np.int16)
    assert not np.shares_memory(larger, first)
    assert not np.shares_memory(scratch.array("b", (4, 6), np.int16), larger)


def test_the_comparison_sees_one_level_in_one_pixel() -> None:
    """The checker's own test: one level off, in one pixel, is seen."""
    step = step_of("sobel")
    picture = noise(9, 9, 1)
    wrong = oracle_op("sobel", picture, {})
    wrong[8, 8] ^= 1
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(run(step, picture), wrong)


def test_pairwise_choices_hold_every_pair_in_few_rows() -> None:
    choices = [range(3), range(2), range(4), range(3), range(3)]
    rows = pairwise(choices)
    for a in range(5):
        for b in range(a):
            assert {(row[a], row[b]) for row in rows} == {(i, j) for i in choices[a] for j in choices[b]}
    assert len(rows) < 20
    assert pairwise([]) == [()]
    assert pairwise(["ab"]) == [("a",), ("b",)]
