"""The report of ``pinhole bench transfer``: tables, JSON and a picture of what :mod:`kernels.transfer` measured.

JSON, one object; ``schema`` 1: new keys may come, none go. ``results`` and ``skipped`` are rows by ``direction`` (in,
out, both, host), ``memory``, ``way`` and ``bytes``; for both directions at once GB/s are each way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kernels.bench import percentile
from kernels.transfer import Figures, Result
from kernels.transfer_plan import DIRECTIONS, Direction, size_text
from service.bar_matrix import Cell, Panel, Picture, Role, draw
from service.bench import table
from service.environment import Load, describe
from service.html_report import Table

SCHEMA = 1
NAME = "bench_transfer"
TITLE = "Moving bytes between CPU and GPU"
HEAD = ("way", "bytes", "p50", "GB/s", "time saved", "of the peak", "runs")
LEGEND = "Green: the best. Orange: what the others are compared with."
NO_GPU = "everything between host and device: pageable, pinned, mapped, registered and managed memory"


def to_json(figures: Figures, absent: str | None, record: dict[str, Any], load: Load) -> dict[str, Any]:
    """See the module. ``absent`` is why there is no GPU."""
    return {
        "schema": SCHEMA,
        "environment": record,
        "load": asdict(load),
        "gpu_absent": absent,
        "interrupted": figures.interrupted,
        "failure": figures.failure,
        "peak": None if figures.peak is None else asdict(figures.peak),
        "results": [_result_json(figures, one) for one in figures.results],
        "skipped": [
            {
                "direction": one.way.direction, "memory": one.way.memory, "way": one.way.name, "bytes": one.nbytes,
                "reason": one.reason, "broken": one.broken,
            }
            for one in figures.skipped
        ],
    }  # fmt: skip


def _result_json(figures: Figures, one: Result) -> dict[str, Any]:
    return {
        "direction": one.way.direction, "memory": one.way.memory, "way": one.way.name, "bytes": one.nbytes,
        "streams": one.way.streams, "p50_us": one.p50_s * 1e6, "p99_us": percentile(one.runs_s, 99) * 1e6,
        "gb_s": one.gb_s, "saved_percent": figures.saved_percent(one), "peak_percent": figures.peak_percent(one),
        "setup_ms": one.setup_s * 1e3, "runs_us": [seconds * 1e6 for seconds in one.runs_s],
    }  # fmt: skip


def remarks(figures: Figures, absent: str | None) -> Iterator[str]:
    """What must be known to read the figures, and what there are none of."""
    if figures.peak is not None:
        peak = figures.peak
        yield (
            f"Peak of the link in this run (long copies of pinned memory): {peak.in_gb_s:.1f} GB/s in, "
            f"{peak.out_gb_s:.1f} out, {peak.both_gb_s:.1f} each way at once."
        )
    if figures.results:
        yield (
            "p50 from the call to all bytes there; each way's bytes were checked against a pattern first. Time saved "
            "is against pageable copies of the same bytes (host → host: memcpy); for both at once GB/s are each way."
        )
    if absent is not None:
        yield f"Not measured: {NO_GPU}; {absent}."
    by_reason: dict[tuple[str, str, bool], list[str]] = {}
    for one in figures.skipped:
        key = (f"{DIRECTIONS[one.way.direction]}, {one.way.name}", one.reason, one.broken)
        by_reason.setdefault(key, []).append(size_text(one.nbytes))
    for (way, reason, broken), sizes in by_reason.items():
        yield f"{'FAILED' if broken else 'Skipped'}: {way}, {', '.join(sizes)}: {reason}"
    if figures.interrupted:
        yield "Interrupted: what was measured until then."
    if figures.failure:
        yield f"Ended by an error: {figures.failure}"


def best_rows(figures: Figures) -> list[tuple[str, ...]]:
    """For each direction and size the fastest way that moves whole contents, beside its baseline."""
    rows: list[tuple[str, ...]] = []
    for direction in DIRECTIONS:
        for nbytes in sorted({one.nbytes for one in figures.results}):
            best = fastest(figures, direction, nbytes)
            if best is not None:
                rows.append((f"{DIRECTIONS[direction]}, {size_text(nbytes)}", best.way.name, *_figures(figures, best)))
    return rows


def fastest(figures: Figures, direction: Direction, nbytes: int) -> Result | None:
    """The way that took least; touching a byte a page moves nothing and does not count."""
    found = [
        one
        for one in figures.results
        if (one.way.direction, one.nbytes) == (direction, nbytes) and one.way.how != "fresh touch"
    ]
    return min(found, key=lambda one: one.p50_s, default=None)


def tables(figures: Figures) -> list[Table]:
    """The best first, then each direction's ways."""
    found = []
    if best := best_rows(figures):
        found.append(Table("The fastest", ("", "way", *HEAD[2:6]), tuple(best)))
    for direction, title in DIRECTIONS.items():
        rows = [
            (one.way.name, size_text(one.nbytes), *_figures(figures, one), str(len(one.runs_s)))
            for one in sorted(figures.results, key=lambda one: one.nbytes)
            if one.way.direction == direction
        ]
        if rows:
            found.append(Table(title, HEAD, tuple(rows)))
    return found


def _figures(figures: Figures, one: Result) -> tuple[str, str, str, str]:
    peak = figures.peak_percent(one)
    return (
        time_text(one.p50_s),
        f"{one.gb_s:.1f}",
        "" if one.way.is_baseline else saved_text(figures.saved_percent(one)),
        "" if peak is None else f"{peak:.0f} %",
    )


def to_text(report: dict[str, Any], figures: Figures) -> str:
    """The whole report for people, Markdown."""
    parts = [f"# {NAME}", describe(report["environment"])]
    for one in tables(figures):
        parts += [f"## {one.title}", table(one.head, one.rows)]
    parts += ["\n".join(f"- {line}" for line in remarks(figures, report["gpu_absent"]))]
    parts += [f"Load: {Load(**report['load'])}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def picture(figures: Figures, about: Sequence[str]) -> Picture:
    """Bars of GB/s: a panel for each direction, full at the link's peak, or at the fastest where there is no link."""
    panels = []
    for direction, title in DIRECTIONS.items():
        results = [one for one in figures.results if one.way.direction == direction]
        if not results:
            continue
        sizes = sorted({one.nbytes for one in results})
        peak = figures.peak.of(direction) if figures.peak is not None else None
        full = [
            max([peak or 0.0, *(one.gb_s for one in results if one.nbytes == n and one.way.how != "fresh touch")])
            for n in sizes
        ]
        best = [fastest(figures, direction, n) for n in sizes]
        names = list(dict.fromkeys(one.way.name for one in results))
        by_place = {(one.way.name, one.nbytes): one for one in results}
        rows = tuple(
            (name, tuple(_cell(figures, by_place.get((name, n)), best[i]) for i, n in enumerate(sizes)))
            for name in names
        )
        at = f" (a full bar: the link's peak, {peak:.1f} GB/s)" if peak else " (a full bar: the fastest)"
        panels.append(Panel(title + at, tuple(map(size_text, sizes)), tuple(full), rows))
    return draw(f"{TITLE}: GB/s, and time saved over pageable copies", panels, (*about, LEGEND))


def _cell(figures: Figures, one: Result | None, best: Result | None) -> Cell | None:
    if one is None:
        return None
    role: Role = "best" if one is best else "baseline" if one.way.is_baseline else "bar"
    saved = "" if one.way.is_baseline else f", {saved_text(figures.saved_percent(one))}"
    return Cell(one.gb_s, f"{one.gb_s:.1f} GB/s{saved if figures.saved_percent(one) is not None else ''}", role)


def time_text(seconds: float) -> str:
    """``28.4 µs``, ``1.82 ms``, ``0.637 s``: three digits."""
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{digits(seconds * factor)} {unit}"
    return f"{digits(seconds)} s"


def digits(value: float) -> str:
    """Three digits, never in powers of ten: ``0.63``, ``28.4``, ``1820``."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def saved_text(percent: float | None) -> str:
    """``83 %`` of the time; of what takes longer, how often as long: ``1.94× as long``."""
    if percent is None:
        return ""
    return f"{percent:.0f} %" if percent >= 0 else f"{digits(1 - percent / 100)}× as long"
