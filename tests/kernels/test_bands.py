"""The band schedule against a model that tracks, row by row, what every scratch picture holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.chain import parse_chain
from kernels.formats import NV12
from kernels.image import ImageSpec
from kernels.plan import MAX_BANDS, band_schedule, default_bands, make_plan


class Model:
    """Two scratch buffers; each byte holds the number of the stage that wrote it last."""

    def __init__(self, height: int, strides: list[int]) -> None:
        self.height = height
        self.strides = strides
        self.buffers = [[-1] * (height * max(strides)) for _ in range(2)]

    def run(self, stage: int, radius: int, first: int, last: int) -> None:
        if stage > 0:
            stride = self.strides[stage - 1]
            rows = slice(max(0, first - radius) * stride, min(self.height, last + radius) * stride)
            held = set(self.buffers[(stage - 1) % 2][rows])
            assert held == {stage - 1}, f"stage {stage} reads rows from {first - radius} on, which hold stages {held}"
        stride = self.strides[stage]
        self.buffers[stage % 2][first * stride : last * stride] = [stage] * ((last - first) * stride)


def check(height: int, bands: int, radii: list[int], strides: list[int] | None = None) -> None:
    schedule = band_schedule(height, bands, radii)
    model = Model(height, strides or [1] * len(schedule))
    done = [0] * len(schedule)
    for band in range(bands):
        for stage, ends in enumerate(schedule):
            assert ends[band] >= done[stage], "a stage goes backwards"
            if ends[band] > done[stage]:
                model.run(stage, ([0, *radii])[stage], done[stage], ends[band])
            done[stage] = ends[band]
    assert done == [height] * len(schedule), "not every row was written"


@given(
    height=st.integers(1, 200),
    bands=st.integers(1, 12),
    radii=st.lists(st.integers(0, 15), max_size=7),
)
def test_no_stage_reads_a_row_too_early_or_too_late(height: int, bands: int, radii: list[int]) -> None:
    check(height, bands, radii)


@given(
    height=st.integers(1, 100),
    bands=st.integers(1, 12),
    radii=st.lists(st.integers(0, 15), min_size=1, max_size=7),
    grey_from=st.integers(0, 8),
)
def test_rows_may_grow_shorter_on_the_way(height: int, bands: int, radii: list[int], grey_from: int) -> None:
    check(height, bands, radii, [3 if stage < grey_from else 1 for stage in range(len(radii) + 1)])


def test_the_model_catches_rows_that_grow_longer() -> None:
    with pytest.raises(AssertionError, match="reads rows"):
        check(64, 4, [2, 2, 2], [1, 1, 3, 3])


def test_the_model_catches_a_schedule_without_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_lag(height: int, bands: int, radii: list[int]) -> list[list[int]]:
        return [[height * (band + 1) // bands for band in range(bands)]] * (len(radii) + 1)

    monkeypatch.setitem(globals(), "band_schedule", without_lag)
    with pytest.raises(AssertionError, match="reads rows"):
        check(64, 4, [2])


@given(height=st.integers(2, 500), bands=st.integers(2, 9))
def test_bands_of_the_ingest_start_on_chroma_rows(height: int, bands: int) -> None:
    assert all(end % 2 == 0 for end in band_schedule(height, bands, [])[0][:-1])


@pytest.mark.parametrize(
    ("size", "expected"), [((640, 480), 1), ((1920, 1080), 1), ((3840, 2160), MAX_BANDS), ((7680, 4320), MAX_BANDS)]
)
def test_small_pictures_are_not_cut(size: tuple[int, int], expected: int) -> None:
    plan = make_plan(parse_chain("sobel"), ImageSpec.make(NV12, *size))
    assert default_bands(plan, integrated=False) == expected
    assert default_bands(plan, integrated=True) == 1


def test_a_chain_that_may_read_any_row_is_not_cut() -> None:
    plan = make_plan(parse_chain("sobel | flip"), ImageSpec.make(NV12, 3840, 2160))
    assert default_bands(plan, integrated=False) == 1
