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
    """Two scratch pictures; each row holds the number of the stage that wrote it last."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.pictures = [[-1] * height, [-1] * height]

    def run(self, stage: int, radius: int, first: int, last: int) -> None:
        if stage > 0:
            for row in range(max(0, first - radius), min(self.height, last + radius)):
                held = self.pictures[(stage - 1) % 2][row]
                assert held == stage - 1, f"stage {stage} reads row {row}, which holds stage {held}"
        self.pictures[stage % 2][first:last] = [stage] * (last - first)


def check(height: int, bands: int, radii: list[int]) -> None:
    schedule = band_schedule(height, bands, radii)
    model = Model(height)
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


def test_the_model_catches_a_schedule_without_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_lag(height: int, bands: int, radii: list[int]) -> list[list[int]]:
        return [[height * (band + 1) // bands for band in range(bands)]] * (len(radii) + 1)

    monkeypatch.setitem(globals(), "band_schedule", without_lag)
    with pytest.raises(AssertionError, match="reads row"):
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
