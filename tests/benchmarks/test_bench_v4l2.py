"""The benchmark of the V4L2 source: each case runs, and a figure is judged by what it copies."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_v4l2 import CASES, Figure, combined, measure, shown


@pytest.mark.parametrize(("case", "copied"), list(zip(CASES, (0, 3110400, 6220800), strict=True)))
def test_each_case_is_what_it_says(case: str, copied: int) -> None:
    found = measure(case, frames=2)
    assert found.copied_bytes == copied
    assert 0 < found.p50_ms <= found.p99_ms


def test_a_figure_is_judged_by_its_median_if_nothing_is_copied() -> None:
    runs = [Figure("a", p50, 1.0, 0) for p50 in (0.05, 0.09, 0.3)]
    lines = shown([combined(runs), Figure("b", 0.11, 1.0, 0), Figure("c", 0.11, 1.0, 5)]).splitlines()[2:]
    assert [line.strip("| ").split("|")[-1].strip() for line in lines] == ["met", "MISSED", "not judged"]
