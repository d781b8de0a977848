"""The benchmark of single operations on the CPU: every op is in it, and what is by hand has the result's shape."""

from __future__ import annotations

import cv2
import pytest

from kernels.registry import all_ops
from tests.benchmarks.bench_cpu_ops import Figure, cases, measure, shown, to_svg
from tests.benchmarks.ops_by_hand import DIFFERS


def test_every_operation_is_measured_in_grey_and_colour() -> None:
    found = [case for case in cases() if not case.plan.converts]
    measured = {(case.chain.steps[0].op.name, str(case.plan.source.format)) for case in found}
    assert measured == {(name, format) for name in all_ops() for format in ("GRAY8", "BGR8")}
    assert set(all_ops()) >= DIFFERS.keys()


def test_both_are_measured_and_opencv_keeps_its_threads() -> None:
    before = cv2.getNumThreads()
    try:
        case = next(case for case in cases() if case.name == "invert")
        found = measure(case, 1, frames=1)
    finally:
        cv2.setNumThreads(before)
    assert found.opencv_us is not None
    assert found.ours_us > 0
    assert found.ratio == found.ours_us / found.opencv_us


@pytest.mark.parametrize(("ours", "word"), [(109.0, "met"), (112.0, "MISSED")])
def test_a_figure_is_judged_by_its_ratio_and_another_method_not_at_all(ours: float, word: str) -> None:
    figures = [Figure(name, "GRAY8", 1, ours, opencv) for name, opencv in (("invert", 100.0), ("overlay_text", 100.0))]
    figures.append(Figure("alone", "GRAY8", 1, ours, None))
    lines = shown(figures).splitlines()[2:]
    assert [line.strip("| ").split("|")[-1].strip() for line in lines] == [word, "not judged", "not judged"]
    drawn = to_svg(figures)
    assert drawn.count(f">{ours / 100:.2f}<") == 2
    assert "alone" not in drawn
