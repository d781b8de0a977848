"""The last frames of a camera as a trace in Chrome's JSON format, which ui.perfetto.dev opens. Pure functions.

Every stage is a row; what overlaps on one (frames of a file that wait together) continues on a second. Arrows lead a
frame from capture to the viewers. Times are CLOCK_MONOTONIC, in microseconds with three decimals, as the stamps are.
Format: "Trace Event Format", the Chromium project.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.frame import Frame
from service.tally import Delivery, Encoding

DEVICE_TIME = (
    "The device says how long it worked on a frame and not when. Its bar ends where the stage saw the frame done, so "
    "that it is late by uncertainty_us at most: what is left of the process bar, launch and waking up included."
)


@dataclass(frozen=True, slots=True)
class Span:
    """What one frame spent in one stage."""

    row: str
    name: str
    sequence: int
    start_ns: int
    end_ns: int
    details: Mapping[str, Any] = field(default_factory=dict)


def render_trace(
    camera: str, frames: Sequence[Frame], encodings: Iterable[Encoding], deliveries: Iterable[Delivery]
) -> bytes:
    """The trace as JSON: some 2 kB a frame, and 0.4 kB more for each viewer. Takes milliseconds."""
    spans = [span for frame in frames for span in frame_spans(frame)]
    spans += viewing_spans(frames, encodings, deliveries)
    pid = os.getpid()
    # By start, and of two that start together the longer one first.
    events = sorted(_slices(spans, pid), key=lambda event: (event["ts"], -event["dur"]))
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {
            "camera": camera, "clock": "CLOCK_MONOTONIC", "frames": len(frames), "device_time": DEVICE_TIME,
        },
        "traceEvents": [*_names(camera, spans, pid), *events, *_arrows(events)],
    }  # fmt: skip
    return json.dumps(trace, allow_nan=False, separators=(",", ":")).encode()


def frame_spans(frame: Frame) -> Iterator[Span]:
    """A processed frame's own stages, which are those of ``/latency``, clamped as they are there."""
    times, number, captured_ns = frame.times, frame.sequence, frame.capture.captured_ns
    published_ns, picked_ns, done_ns = times.published_ns, times.picked_ns, times.done_ns
    start_ns = min(captured_ns, published_ns)
    yield Span("capture", "capture", number, start_ns, published_ns, details={"stamped_by": frame.capture.clock})
    yield Span("queue", "queue", number, published_ns, picked_ns)
    details = {
        "chain_version": frame.chain_version,
        "submit_us": max(0, times.submitted_ns - picked_ns) / 1e3,
        "total_us": max(0, done_ns - captured_ns) / 1e3,
        **({"warmup": True} if frame.warmup else {}),
    }
    yield Span("process", "process", number, picked_ns, done_ns, details=details)
    if times.gpu_ns:
        gpu_start_ns, gpu_end_ns, uncertainty_ns = place_device(picked_ns, done_ns, times.gpu_ns)
        uncertain = {"uncertainty_us": uncertainty_ns / 1e3, "measured_us": times.gpu_ns / 1e3}
        yield Span("gpu", "gpu", number, gpu_start_ns, gpu_end_ns, uncertain)


def place_device(picked_ns: int, done_ns: int, gpu_ns: int) -> tuple[int, int, int]:
    """Start and end of the device's work on the host's clock, and how much earlier it may have been.

    It began after the frame was picked up and was over before the stage saw it done. A device's clock that runs fast
    may count more than there was; the bar is then all there was.
    """
    start_ns = max(picked_ns, done_ns - gpu_ns)
    return start_ns, done_ns, start_ns - picked_ns


def viewing_spans(
    frames: Iterable[Frame], encodings: Iterable[Encoding], deliveries: Iterable[Delivery]
) -> Iterator[Span]:
    """What was made of these frames and who was handed it.

    A camera of the same name may have been there before, with frames of the same numbers: theirs were earlier.
    """
    done_ns = {frame.sequence: frame.times.done_ns for frame in frames}
    for one in encodings:
        if one.started_ns >= done_ns.get(one.sequence, one.started_ns + 1):
            size = {"bytes": one.nbytes}
            yield Span(f"encode {one.rendition}", "encode", one.sequence, one.started_ns, one.ended_ns, details=size)
    for to in deliveries:
        if to.encoded_ns >= done_ns.get(to.sequence, to.encoded_ns + 1):
            yield Span(f"deliver {to.viewer}", "deliver", to.sequence, to.encoded_ns, to.delivered_ns)


def lanes(spans: Sequence[Span]) -> list[int]:
    """For each span of one row, which lane it lies in: as few as there are overlapping at once."""
    free_ns: list[int] = []
    chosen = [0] * len(spans)
    for at in sorted(range(len(spans)), key=lambda i: (spans[i].start_ns, spans[i].end_ns)):
        span = spans[at]
        lane = next((i for i, until_ns in enumerate(free_ns) if until_ns <= span.start_ns), len(free_ns))
        if lane == len(free_ns):
            free_ns.append(0)
        free_ns[lane] = span.end_ns
        chosen[at] = lane
    return chosen


def _rows(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """By row, in the order in which a frame passes them."""
    rows: dict[str, list[Span]] = {}
    for span in spans:
        rows.setdefault(span.row, []).append(span)
    order = ("capture", "queue", "process", "gpu", "encode", "deliver")
    return dict(sorted(rows.items(), key=lambda row: (order.index(row[1][0].name), row[0])))


_LANES = 100  # room for a row's in the numbers of the rows


def _slices(spans: Iterable[Span], pid: int) -> Iterator[dict[str, Any]]:
    for row, members in enumerate(_rows(spans).values()):
        for span, lane in zip(members, lanes(members), strict=True):
            yield {
                "ph": "X", "pid": pid, "tid": 1 + row * _LANES + lane, "cat": span.name, "name": span.name,
                "ts": span.start_ns / 1e3, "dur": (span.end_ns - span.start_ns) / 1e3,
                "args": {"frame": span.sequence, **span.details},
            }  # fmt: skip


def _names(camera: str, spans: Iterable[Span], pid: int) -> Iterator[dict[str, Any]]:
    threads = {"capture": f"cap-{camera}", "process": f"stage-{camera}"}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": f"camera {camera}"}}
    for row, (name, members) in enumerate(_rows(spans).items()):
        thread = f" ({threads[name]})" if name in threads else ""
        for lane in range(max(lanes(members)) + 1):
            tid = 1 + row * _LANES + lane
            label = f"{name}{thread}" if lane == 0 else f"{name} {lane + 1}"
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": label}}
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _arrows(slices: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """From each frame's first bar to its last, by the bars' middles: their ends are their neighbours' as well."""
    ways: dict[int, list[Mapping[str, Any]]] = {}
    for event in slices:
        if event["name"] != "gpu":
            ways.setdefault(event["args"]["frame"], []).append(event)
    for number, way in ways.items():
        way.sort(key=lambda event: event["ts"] + event["dur"] / 2)
        for at, event in enumerate(way if len(way) > 1 else ()):
            kind = "s" if at == 0 else "f" if at == len(way) - 1 else "t"
            yield {
                "ph": kind, "id": number, "cat": "frame", "name": "frame", "pid": event["pid"], "tid": event["tid"],
                "ts": event["ts"] + event["dur"] / 2, **({"bp": "e"} if kind == "f" else {}),
            }  # fmt: skip
