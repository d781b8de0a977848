"""How a frame's bytes cross, as whole numbers; and the choice among the ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import auto
from kernels.auto import Choice, candidates, fastest
from kernels.chain import Chain, parse_chain
from kernels.crossing import IN_PLACE, LEAST_BAND_BYTES, Crossing, band_rows, bands, staged
from kernels.formats import BGR8, NV12
from kernels.geometry import BAND_ROWS
from kernels.image import ImageSpec
from kernels.plan import make_plan


@given(st.integers(1, 1 << 28), st.integers(1, 32))
def test_no_copy_is_much_smaller_than_it_is_worth(nbytes: int, wanted: int) -> None:
    count = bands(nbytes, wanted)
    assert 1 <= count <= wanted
    assert count == 1 or nbytes // count >= LEAST_BAND_BYTES


@given(st.integers(1, 16384), st.integers(1, 32))
def test_bands_cover_a_picture_once(height: int, count: int) -> None:
    rows = band_rows(height, count)
    assert rows % BAND_ROWS == 0
    made = -(-height // rows)
    assert 1 <= made <= count
    assert (made - 1) * rows < height <= made * rows


def test_small_pictures_cross_as_a_whole() -> None:
    small = make_plan(Chain(), ImageSpec.make(BGR8, 320, 240))
    large = make_plan(Chain(), ImageSpec.make(BGR8, 1920, 1080))
    assert staged(small) == Crossing(1, 1)
    assert staged(large) == Crossing(4, 4)


def test_candidates_begin_in_place_and_are_all_different() -> None:
    plan = make_plan(parse_chain("sobel"), ImageSpec.make(NV12, 1920, 1080))
    found = candidates(plan, True)
    assert found[0] == IN_PLACE
    assert len(set(found)) == len(found)
    assert {crossing.into > 0 for crossing in found} == {crossing.out > 0 for crossing in found} == {True, False}
    assert max(crossing.into for crossing in candidates(plan, False)) == 1


@pytest.mark.parametrize(
    ("place", "copied", "expected"), [(100.0, 90.0, Crossing(3, 3)), (100.0, 99.0, IN_PLACE), (90.0, 100.0, IN_PLACE)]
)
def test_copies_have_to_be_worth_it(place: float, copied: float, expected: Crossing) -> None:
    times = [(IN_PLACE, [place, 5000.0, place]), (Crossing(3, 3), [copied, copied, 7000.0])]
    chosen, medians = fastest(times)
    assert chosen == expected
    assert medians == {"in mapped, out mapped": place, "in copied in 3 bands, out copied in 3 bands": copied}


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=8))
def test_the_choice_is_never_much_worse_than_the_best(times: list[float]) -> None:
    ways = [(Crossing(number, number), [time]) for number, time in enumerate(times)]
    chosen, _ = fastest(ways)
    assert times[chosen.into] <= 1.05 * min(times)


def test_a_choice_is_kept(tmp_path: Path) -> None:
    choice = Choice(Crossing(3, 0), {"in mapped, out mapped": 20.5}, "2026-12-01T00:00:00+00:00")
    path = tmp_path / "new" / "x.crossing.json"
    auto._write(path, choice)
    assert auto._read(path) == choice
    assert json.loads(json.dumps(choice.describe()))["chosen"] == "in copied in 3 bands, out mapped"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"crossing": 3}', '{"crossing": {"to": 1}}', "null", "\0"])
def test_a_damaged_choice_is_measured_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.crossing.json"
    path.write_text(text)
    assert auto._read(path) is None
    assert auto._read(tmp_path / "nothing") is None
    assert auto._read(None) is None


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder")
    auto._write(tmp_path / "file" / "x.json", Choice(IN_PLACE, {}, ""))
    assert "not kept" in caplog.text
    auto._write(None, Choice(IN_PLACE, {}, ""))
