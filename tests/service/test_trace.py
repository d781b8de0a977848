"""The trace: what it says is what was stamped, on one clock, in the form that ui.perfetto.dev reads."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.chain import parse_chain
from pipeline.counters import MOST_TRACED
from pipeline.frame import Capture, Frame, FrameTimes
from service.tally import Delivery, Encoding
from service.trace import Span, lanes, place_device, render_trace
from tests.helpers.inprocess import serving
from tests.helpers.mjpeg import StreamClient
from tests.helpers.server import SMALL_CARD
from tests.service.test_api import assert_problem

_COMMON: dict[str, Any] = {"pid": {"type": "integer", "minimum": 1}, "tid": {"type": "integer", "minimum": 0}}
_TIME = {"type": "number", "minimum": 0}


def _event(kind: list[str], required: list[str], **properties: Any) -> dict[str, Any]:
    fields = {"ph": {"enum": kind}, "name": {"type": "string", "minLength": 1}, **_COMMON, **properties}
    required = ["ph", "name", "pid", "tid", *required]
    return {"type": "object", "required": required, "additionalProperties": False, "properties": fields}


# Written from the Chromium project's "Trace Event Format".
SCHEMA = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit", "otherData"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _event(
                        ["X"], ["ts", "dur", "args"], ts=_TIME, dur=_TIME, cat={"type": "string"},
                        args={"type": "object", "required": ["frame"]},
                    ),
                    _event(["M"], ["args"], args={"type": "object"}),
                    _event(["s", "t"], ["ts", "id", "cat"], ts=_TIME, id={"type": "integer"}, cat={"type": "string"}),
                    _event(
                        ["f"], ["ts", "id", "cat", "bp"], ts=_TIME, id={"type": "integer"}, cat={"type": "string"},
                        bp={"const": "e"},
                    ),
                ]
            },
        },
    },
}  # fmt: skip


def check(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """A trace that a viewer shows rightly; its slices by stage."""
    jsonschema.validate(trace, SCHEMA)
    events = trace["traceEvents"]
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["ts"] for event in slices] == sorted(event["ts"] for event in slices)
    ends: dict[int, float] = defaultdict(float)
    stages = defaultdict(list)
    for event in slices:
        assert event["tid"] in named
        assert event["ts"] >= ends[event["tid"]] - 1e-6, "two bars of one row overlap"
        ends[event["tid"]] = event["ts"] + event["dur"]
        stages[event["name"]].append(event)
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            arrows[event["id"]].append(event)
            under = [e for e in slices if e["tid"] == event["tid"] and e["ts"] <= event["ts"] <= e["ts"] + e["dur"]]
            assert any(e["args"]["frame"] == event["id"] for e in under), "an arrow from no bar of its frame"
    for number, way in arrows.items():
        kinds = [event["ph"] for event in way]
        assert (kinds[0], kinds[-1]) == ("s", "f"), number
        assert set(kinds[1:-1]) <= {"t"}
        assert [event["ts"] for event in way] == sorted(event["ts"] for event in way)
        assert len(way) == sum(e["args"]["frame"] == number and e["name"] != "gpu" for e in slices)
    assert set(arrows) == {event["args"]["frame"] for event in slices}
    return stages


def total_ms(events: list[dict[str, Any]]) -> float:
    return float(sum(event["dur"] for event in events)) / 1e3


def test_its_stages_add_up_to_what_latency_says() -> None:
    with serving({"one": SMALL_CARD}, chains={"one": parse_chain("gaussian_blur")}) as served:
        with StreamClient(served.port, "/cameras/one/stream") as stream:
            parts = stream.parts()
            for _ in range(10):
                next(parts)
        served.until(lambda: served.context.hub.statistics("one").viewers == {})
        before_ns = time.monotonic_ns()
        assert served.engine.get("one").stop(5)
        latency = served.get("/api/v1/cameras/one/latency").json()["stages"]
        reply = served.get(f"/api/v1/cameras/one/trace?frames={MOST_TRACED}")
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-disposition"] == 'attachment; filename="one.trace.json"'
    stages = check(reply.json())
    warm = [event for event in stages["process"] if "warmup" not in event["args"]]
    assert len(stages["process"]) == len(warm) + 1
    assert len(stages["process"]) < MOST_TRACED, "the camera ran too long for this to be all of its frames"
    assert len(stages["deliver"]) >= 9
    for name, events in (*stages.items(), ("process", warm)):
        said = latency[name]
        if name == "process" and events is not warm:
            continue
        if name == "capture" and len(events) != said["count"]:  # some were dropped, and have no other stage
            assert len(events) < said["count"]
            continue
        assert len(events) == said["count"], name
        assert total_ms(events) == pytest.approx(said["mean_ms"] * said["count"], abs=1e-4 * said["count"]), name
    assert sum(e["args"]["total_us"] for e in warm) / 1e3 == pytest.approx(
        latency["total"]["mean_ms"] * len(warm), abs=1e-4 * len(warm)
    )
    assert all(abs(event["ts"] * 1e3 - before_ns) < 60e9 for event in stages["process"]), "another clock"
    assert "gpu" not in stages


def test_as_many_frames_as_asked_for_and_errors_in_words() -> None:
    with serving({"one": SMALL_CARD}) as served:
        served.until(lambda: served.engine.get("one").statistics().processed >= 8)
        for count in (1, 5):
            stages = check(served.get(f"/api/v1/cameras/one/trace?frames={count}").json())
            assert len(stages["process"]) == count
        assert served.request("HEAD", "/api/v1/cameras/one/trace").status == 200
        for wrong in ("0", "-1", str(MOST_TRACED + 1), "many", "nan", "1.5", "1e9"):
            assert_problem(
                served.get(f"/api/v1/cameras/one/trace?frames={wrong}"), 422, "frames", f"1 to {MOST_TRACED}"
            )
        assert_problem(served.get("/api/v1/cameras/one/trace?frame=1"), 422, "frame", "frames")
        assert_problem(served.get("/api/v1/cameras/nine/trace"), 404, "camera", "one")
        assert served.get("/api/v1/cameras/one").json()["links"]["trace"] == "/api/v1/cameras/one/trace"


def frame(number: int, start_ns: int, *stages_ns: int, gpu_ns: int = 0) -> Frame:
    """Captured at ``start_ns``; how long capture, queue and process took."""
    published_ns, picked_ns, done_ns = (start_ns + sum(stages_ns[: i + 1]) for i in range(3))
    return Frame(number, Capture(start_ns, 0), FrameTimes(published_ns, picked_ns, done_ns, gpu_ns, picked_ns))


def test_before_the_first_frame_it_is_empty_and_valid() -> None:
    assert check(json.loads(render_trace("a", [], [], []))) == {}


def test_what_overlaps_goes_to_rows_of_its_own() -> None:
    """Four frames of a file wait together; two viewers get each frame late."""
    frames = [frame(n, 1000 + 10 * n, 5, 100 * (n + 1), 40, gpu_ns=30) for n in range(4)]
    made = [Encoding(n, "result jpg q80", 2000 + 50 * n, 2040 + 50 * n, 7) for n in range(4)]
    handed = [Delivery(n, f"mjpeg {v}", 2040 + 50 * n, 2500 + 50 * n + v) for n in range(4) for v in (1, 2)]
    trace = json.loads(render_trace("a", frames, made, handed))
    stages = check(trace)
    assert {name: len(events) for name, events in stages.items()} == {
        "capture": 4, "queue": 4, "process": 4, "gpu": 4, "encode": 4, "deliver": 8,
    }  # fmt: skip
    rows = Counter(e["args"]["name"].rpartition(" ")[0] for e in trace["traceEvents"] if e["name"] == "thread_name")
    assert rows["queue"] >= 2
    assert rows["deliver mjpeg 1"] >= 3


def test_a_camera_that_had_the_name_before_is_not_mixed_in() -> None:
    frames = [frame(0, 10_000, 5, 5, 5)]
    old = Encoding(0, "result jpg q80", 500, 600, 7), Encoding(9, "result jpg q80", 10_200, 10_300, 7)
    new = Encoding(0, "result jpg q80", 10_100, 10_150, 8)
    stages = check(json.loads(render_trace("a", frames, [*old, new], [Delivery(0, "mjpeg 1", 600, 700)])))
    assert [event["args"] for event in stages["encode"]] == [{"frame": 0, "bytes": 8}]
    assert "deliver" not in stages


@given(st.integers(0, 1 << 60), *(st.integers(0, 10**9) for _ in range(3)), st.integers(-1000, 1000))
def test_the_device_is_placed_within_its_uncertainty(
    picked_ns: int, launch_ns: int, worked_ns: int, waking_ns: int, clock_error_ns: int
) -> None:
    """Whatever launch and wake-up took, the true start lies between the earliest possible one and the bar's."""
    begun_ns = picked_ns + launch_ns
    done_ns = begun_ns + worked_ns + waking_ns
    measured_ns = max(0, worked_ns + clock_error_ns)
    start_ns, end_ns, uncertainty_ns = place_device(picked_ns, done_ns, measured_ns)
    assert picked_ns <= start_ns <= end_ns <= done_ns
    error_ns = abs(measured_ns - worked_ns)
    assert start_ns - uncertainty_ns - error_ns <= begun_ns <= start_ns + error_ns
    if measured_ns <= done_ns - picked_ns:
        assert end_ns - start_ns == measured_ns
        assert uncertainty_ns == done_ns - picked_ns - measured_ns
    else:
        assert uncertainty_ns == 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=25))
def test_lanes_are_as_few_as_overlap_at_once(drawn: list[tuple[int, int]]) -> None:
    spans = [Span("row", "queue", n, start, start + length) for n, (start, length) in enumerate(drawn)]
    chosen = lanes(spans)
    for a, at in zip(spans, chosen, strict=True):
        for b, beside in zip(spans, chosen, strict=True):
            if a is not b and at == beside:
                assert a.end_ns <= b.start_ns or b.end_ns <= a.start_ns
    deepest = max((sum(s.start_ns <= t < s.end_ns for s in spans) for t in range(81)), default=0)
    assert len(set(chosen)) == deepest


def test_the_check_fails_on_what_a_viewer_would_show_wrongly() -> None:
    good = json.loads(render_trace("a", [frame(n, 1000 + n, 5, 50, 5) for n in range(2)], [], []))
    check(good)
    same_row = json.loads(json.dumps(good))
    for event in same_row["traceEvents"]:
        event["tid"] = 1 if event["ph"] == "X" else event["tid"]
    with pytest.raises(AssertionError):
        check(same_row)
    unfinished = {**good, "traceEvents": [event for event in good["traceEvents"] if event["ph"] != "f"]}
    with pytest.raises(AssertionError):
        check(unfinished)
