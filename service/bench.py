"""The report of ``pinhole bench chain``: tables, JSON and a chart of what :mod:`kernels.bench` measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernels.bench import BY_HAND, FUSED, CaseFigures, Figures, ratio
from kernels.bench_case import traffic
from service.chart import Group, bar_chart
from service.environment import Load, describe

SCHEMA = 1
NAME = "bench_chain"
median = statistics.median


def to_json(figures: Figures, record: dict[str, Any], load: Load) -> dict[str, Any]:
    """One object. ``schema`` 1: new keys may come, none go. Times are medians over the turns, which ``runs`` holds."""
    return {
        "schema": SCHEMA,
        "environment": record,
        "load": asdict(load),
        "link": [asdict(link) for link in figures.links],
        "cases": [_case_json(one) for one in figures.cases],
    }


def _case_json(one: CaseFigures) -> dict[str, Any]:
    case = one.case
    found: dict[str, Any] = {
        "chain": str(case.chain),
        "name": case.name,
        "source": case.plan.source.describe(),
        "result": case.plan.result.describe(),
        "result_on_device": case.on_device,
        "passes": len(case.plan.passes),
        "bytes_in": case.bytes_in,
        "bytes_out": case.bytes_out,
        "floor_us": _median(one.floor_us),
        "one_exchange_us": _median(one.alone_us),
        "ways": {way: _way_json(one, way) for way in one.ways},
        "runs": {"floor_us": one.floor_us, "one_exchange_us": one.alone_us},
    }
    if one.kernels_us and one.kernels_plan is not None:
        read, written = traffic(one.kernels_plan)
        found["kernels"] = {
            "us": median(one.kernels_us), "runs": one.kernels_us, "bytes_read": read, "bytes_written": written,
            "passes": len(one.kernels_plan.passes), "gb_s": kernels_gb_s(one),
        }  # fmt: skip
    if one.cold_ms:
        found["start"] = {"cold_ms": median(one.cold_ms), "warm_ms": median(one.warm_ms)}
        found["start"]["runs"] = {"cold_ms": one.cold_ms, "warm_ms": one.warm_ms}
    return found


def _way_json(one: CaseFigures, way: str) -> dict[str, Any]:
    figures = one.ways[way]
    if not figures.p50_us:
        return {"left_out": figures.left_out}
    found = {
        "p50_us": median(figures.p50_us), "p99_us": median(figures.p99_us), "frames": figures.frames,
        "runs": {"p50_us": figures.p50_us, "p99_us": figures.p99_us},
    }  # fmt: skip
    if one.floor_us:
        found["over_floor"] = ratio(figures.p50_us, one.floor_us)
        found["over_floor_us"] = median([a - b for a, b in zip(figures.p50_us, one.floor_us, strict=True)])
    reference = one.ways.get(reference_of(one))
    if reference is not None and reference.p50_us:
        found[f"over_{'pinhole' if one.floor_us else 'by_hand'}"] = ratio(figures.p50_us, reference.p50_us)
    return found


def reference_of(one: CaseFigures) -> str:
    """What the other ways are compared with: Pinhole on a GPU, OpenCV by hand without one."""
    return FUSED if FUSED in one.ways else BY_HAND


def kernels_gb_s(one: CaseFigures) -> float:
    """Bytes by the plan, read and written, over the time of the kernels."""
    assert one.kernels_plan is not None
    return sum(traffic(one.kernels_plan)) / median(one.kernels_us) / 1e3


def to_markdown(figures: Figures) -> str:
    """The tables and what must be known to read them."""
    on_gpu = bool(figures.links)
    parts = [_ways_table(figures.cases, on_gpu)]
    if figures.links:
        into, out, within = (median([getattr(link, name) for link in figures.links]) for name in _LINK)
        parts.append(
            "Floor: both copy engines at once, pinned memory, the frame's bytes in and out, queued. "
            f"One way alone: {into:.1f} GB/s in, {out:.1f} GB/s out; copies within device memory: {within:.0f} GB/s."
        )
        if any(one.kernels_us for one in figures.cases):
            parts.append(_kernels_table(figures.cases, within))
        if any(one.cold_ms for one in figures.cases):
            parts.append(_starts_table(figures.cases))
    left_out = list(_left_out(figures.cases))
    if left_out:
        parts.append("Left out:\n" + "\n".join(f"- {line}" for line in left_out))
    return "\n\n".join(parts)


_LINK = ("in_gb_s", "out_gb_s", "device_gb_s")


def _ways_table(cases: Sequence[CaseFigures], on_gpu: bool) -> str:
    floor = ["over floor", "µs over floor"] if on_gpu else []
    rows: list[list[object]] = []
    for one in cases:
        if one.floor_us:
            rows.append([one.case.text, "floor", median(one.floor_us), "", 1.0, 0.0, ""])
        for way, figures in one.ways.items():
            if not figures.p50_us:
                continue
            found = _way_json(one, way)
            over = [found["over_floor"], found["over_floor_us"]] if one.floor_us else []
            compared = found.get("over_pinhole", found.get("over_by_hand", ""))
            rows.append([one.case.text, way, found["p50_us"], found["p99_us"], *over, compared])
    return table(["case", "way", "p50 µs", "p99 µs", *floor, "× Pinhole" if on_gpu else "× by hand"], rows)


def _kernels_table(cases: Sequence[CaseFigures], device_gb_s: float) -> str:
    rows: list[list[object]] = []
    for one in cases:
        if one.kernels_us and one.kernels_plan is not None:
            read, written = traffic(one.kernels_plan)
            passes = len(one.kernels_plan.passes)
            share = f"{kernels_gb_s(one) / device_gb_s:.0%}"
            rows.append(
                [one.case.text, passes, median(one.kernels_us), read / 1e6, written / 1e6, kernels_gb_s(one), share]
            )
    head = ["kernels alone, in device memory", "passes", "µs", "MB read", "MB written", "GB/s", "of a copy's"]
    return table(head, rows)


def _starts_table(cases: Sequence[CaseFigures]) -> str:
    rows = [
        [one.case.text, len(one.case.chain.steps), median(one.cold_ms), max(one.cold_ms), median(one.warm_ms)]
        for one in cases
        if one.cold_ms
    ]
    return table(["start, to the first frame", "ops", "cold ms", "slowest", "warm ms"], rows)


def _left_out(cases: Sequence[CaseFigures]) -> Iterator[str]:
    for one in cases:
        for way, figures in one.ways.items():
            if figures.left_out:
                yield f"{one.case.text}: {way}, nothing there for {figures.left_out}"


def to_svg(figures: Figures) -> str:
    """A group of bars for each case."""
    groups = [
        Group(
            one.case.text,
            tuple((way, median(found.p50_us)) for way, found in one.ways.items() if found.p50_us),
            ("floor", median(one.floor_us)) if one.floor_us else None,
        )
        for one in figures.cases
    ]
    where = "host memory to host memory" if figures.links else "on the CPU"
    return bar_chart(f"Chains, {where}: one frame, p50 (each group has its own scale)", groups, "µs")


def to_text(report: dict[str, Any], figures: Figures, remarks: str = "") -> str:
    """The whole report for people, Markdown."""
    parts = [f"# {NAME}", describe(report["environment"]), to_markdown(figures), f"Load: {Load(**report['load'])}."]
    return "\n\n".join([*parts, remarks] if remarks else parts) + "\n"


def write(out: Path, report: dict[str, Any], figures: Figures, text: str) -> None:
    """Write ``bench_chain.json``, ``.md`` and ``.svg`` into ``out``, a folder that is there. Raises OSError."""
    (out / f"{NAME}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / f"{NAME}.md").write_text(text, encoding="utf-8")
    (out / f"{NAME}.svg").write_text(to_svg(figures), encoding="utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table that reads well as it is: the first column to the left, the others to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]

    def line(values: Sequence[str]) -> str:
        parts = [
            value.ljust(w) if i == 0 else value.rjust(w)
            for i, (value, w) in enumerate(zip(values, widths, strict=True))
        ]
        return "| " + " | ".join(parts) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value.replace("|", "\\|")
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
