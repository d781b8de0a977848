"""How the benchmark of chains judges: each bar by its own figures, and nothing where there are none."""

from __future__ import annotations

import pytest

from kernels.bench import BY_HAND, FUSED, ON_CPU, CaseFigures, Figures, WayFigures
from tests.benchmarks.bench_chain import HD, RUNS, Verdict, cases_of, judged, verdicts

BARS = 13


def figures(factor: float) -> Figures:
    """Each figure ``factor`` times its bar: std8 apart, which hangs on std4."""
    p50 = {"std4": {1920: 205.0, 3840: 745.0}, "point": {1920: 155.0, 3840: 500.0}}
    floor = {1920: 100.0, 3840: 400.0}
    kernels = {1920: 45.0, 3840: 120.0}
    made = []
    for case in cases_of(True):
        width = case.plan.source.width
        value = 140.0 if case.on_device else p50["std4"][width] * 1.2 if case.name == "std8" else p50[case.name][width]
        one = CaseFigures(case, floor_us=[floor[width]] * RUNS, kernels_us=[kernels[width] * factor] * RUNS)
        one.ways = {
            FUSED: WayFigures([value * factor] * RUNS, [value] * RUNS, 9),
            ON_CPU: WayFigures([1.1 * factor * 8000] * RUNS, [9000.0] * RUNS, 9),
            BY_HAND: WayFigures([8000.0] * RUNS, [9000.0] * RUNS, 9),
        }
        made.append(one)
    return Figures(made)


@pytest.mark.parametrize(("factor", "word"), [(0.999, "met"), (1.001, "MISSED")])
def test_each_bar_is_judged_by_its_own_figures(factor: float, word: str) -> None:
    found = list(verdicts(figures(factor), 1.3 * factor, [(10.0, 1.0), (1500 * factor, 100 * factor)], True))
    assert len(found) == BARS
    for one in found:
        if "std8" not in one.what:
            assert one.word == word, one
        elif one.found is not None:
            assert one.found == pytest.approx(1.2), "both are that much slower or quicker"


def test_what_was_not_measured_is_not_met() -> None:
    found = list(verdicts(Figures([]), None, [], True))
    assert {one.word for one in found} == {"not judged"}
    (alone,) = verdicts(Figures([]), None, [], False)
    assert alone.word == "not judged"


def test_verdicts_are_a_table_with_the_figures() -> None:
    text = judged([Verdict("speed", 204.9, 205, " µs"), Verdict("ratio", 1.56, 1.55, "x"), Verdict("none", None, 3)])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert cells == [
        ["speed", "205 µs", "205 µs", "met"],
        ["ratio", "1.56x", "1.55x", "MISSED"],
        ["none", "", "3", "not judged"],
    ]


def test_without_a_gpu_the_cpus_bar_alone_is_measured() -> None:
    assert [case.name for case in cases_of(False)] == ["std4", "point"]
    assert all((case.plan.source.width, case.plan.source.height) == HD for case in cases_of(False))
