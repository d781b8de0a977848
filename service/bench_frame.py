"""The report of ``pinhole bench frame``: tables, JSON and a picture of what :mod:`kernels.bench_frame` measured.

JSON, one object; ``schema`` 1: new keys may come, none go. ``cases`` hold for each memory strategy, and for OpenCV by
hand, the medians over the turns and every turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kernels.bench import BY_HAND
from kernels.bench_frame import BASELINE, FrameCase, FrameFigures
from service.bar_matrix import Cell, Panel, Picture, Role, draw
from service.bench import table
from service.bench_transfer import digits, saved_text
from service.environment import Load, describe
from service.html_report import Table

SCHEMA = 1
NAME = "bench_frame"
TITLE = "One frame through a chain, by memory strategy"
LEGEND = "Green: the best, the first within 5 % of the fastest. Orange: what the others are compared with."
HEAD = ("memory", "size", "p50 µs", "p99 µs", "saved over pageable", "saved over OpenCV", "frames")


def to_json(figures: FrameFigures, record: dict[str, Any], load: Load) -> dict[str, Any]:
    """See the module."""
    return {
        "schema": SCHEMA,
        "environment": record,
        "load": asdict(load),
        "interrupted": figures.interrupted,
        "failure": figures.failure,
        "devices": figures.devices,
        "absent": figures.absent,
        "cases": [_case_json(one) for one in figures.cases],
    }


def _case_json(one: FrameCase) -> dict[str, Any]:
    case = one.case
    ways: dict[str, Any] = {}
    for way, found in one.ways.items():
        if not found.p50_us:
            ways[way] = {"left_out": found.left_out}
            continue
        ways[way] = {
            "p50_us": one.p50_us(way), "p99_us": one.p99_us(way), "frames": found.frames,
            "saved_over_pageable_percent": one.saved_percent(way, BASELINE),
            "saved_over_opencv_percent": one.saved_percent(way, BY_HAND),
            "runs": {"p50_us": found.p50_us, "p99_us": found.p99_us},
        }  # fmt: skip
    return {
        "name": case.name, "chain": str(case.chain), "source": case.plan.source.describe(),
        "result": case.plan.result.describe(), "bytes_in": case.bytes_in, "bytes_out": case.bytes_out,
        "best": one.best(), "ways": ways,
    }  # fmt: skip


def remarks(figures: FrameFigures) -> Iterator[str]:
    """What must be known to read the figures, and what there are none of."""
    yield (
        "p50 of one frame, from submit to done, host memory to host memory, waiting with a core; the CPU has written "
        "to each page of the source before, as a camera does."
    )
    for name, reason in figures.absent.items():
        yield f"Not measured: {name}: {reason}"
    for one in figures.cases:
        for way, found in one.ways.items():
            if found.left_out:
                yield f"Left out: {one.case.text}, {way}: {found.left_out}"
    if figures.interrupted:
        yield "Interrupted: what was measured until then."
    if figures.failure:
        yield f"Ended by an error: {figures.failure}"


def groups(figures: FrameFigures) -> dict[str, list[FrameCase]]:
    """Cases that differ in size only, by what they share: ``std4, BGR8``."""
    found: dict[str, list[FrameCase]] = {}
    for one in figures.cases:
        if any(way.p50_us for way in one.ways.values()):
            found.setdefault(f"{one.case.name}, {one.case.plan.source.format}", []).append(one)
    return found


def size(one: FrameCase) -> str:
    return f"{one.case.plan.source.width}x{one.case.plan.source.height}"


def tables(figures: FrameFigures) -> list[Table]:
    """One for each chain and format."""
    return [
        Table(title, HEAD, tuple(row for one in cases for row in _rows(one)))
        for title, cases in groups(figures).items()
    ]


def _rows(one: FrameCase) -> Iterator[tuple[str, ...]]:
    best = one.best()
    for way, found in one.ways.items():
        p50, p99 = one.p50_us(way), one.p99_us(way)
        if p50 is not None and p99 is not None:
            saved = (saved_text(one.saved_percent(way, over)) for over in (BASELINE, BY_HAND))
            name = f"{way}, the best" if way == best and len(one.ways) > 2 else way
            yield name, size(one), digits(p50), digits(p99), *saved, str(found.frames)


def to_text(report: dict[str, Any], figures: FrameFigures) -> str:
    """The whole report for people, Markdown."""
    parts = [f"# {NAME}", describe(report["environment"])]
    for one in tables(figures):
        parts += [f"## {one.title}", table(one.head, one.rows)]
    parts += ["\n".join(f"- {line}" for line in remarks(figures)), f"Load: {Load(**report['load'])}."]
    return "\n\n".join(parts) + "\n"


def picture(figures: FrameFigures, about: Sequence[str]) -> Picture:
    """Bars of time: a panel for each chain and format, a column for each size with a scale of its own."""
    panels = []
    for title, cases in groups(figures).items():
        ways = list(dict.fromkeys(way for one in cases for way, found in one.ways.items() if found.p50_us))
        rows = tuple((way, tuple(_cell(one, way) for one in cases)) for way in ways)
        panels.append(Panel(title, tuple(map(size, cases)), tuple(map(_scale, cases)), rows))
    over = BASELINE if any(one.p50_us(BASELINE) for one in figures.cases) else BY_HAND
    return draw(f"{TITLE}: p50, and time saved over {over}", panels, (*about, LEGEND))


def _scale(one: FrameCase) -> float:
    """The slowest, but no more than twice pageable copies: what is slower still is cut."""
    slowest = max(p50 for way in one.ways if (p50 := one.p50_us(way)) is not None)
    pageable = one.p50_us(BASELINE)
    return slowest if pageable is None else min(slowest, 2 * pageable)


def _cell(one: FrameCase, way: str) -> Cell | None:
    p50 = one.p50_us(way)
    if p50 is None:
        return None
    over = BASELINE if one.p50_us(BASELINE) is not None else BY_HAND
    role: Role = "best" if way == one.best() else "baseline" if way == over else "bar"
    saved = saved_text(one.saved_percent(way, over))
    return Cell(p50, f"{digits(p50)} µs{', ' + saved if saved else ''}", role)
