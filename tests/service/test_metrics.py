"""Metrics are true: every series is read back by the client library's own parser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kernels.device import NullDevice
from pipeline.latency import LogHistogram
from service.describe import STAGES
from service.metrics import BOUNDS_US, STAGE_MEANINGS, PinholeCollector, Snapshot, buckets, render_metrics
from tests.helpers.inprocess import Served, serving
from tests.helpers.server import SMALL_CARD
from tests.pipeline.fakes import Block, FakeSource, Maker, pictures

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


def parse(text: bytes) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def only(samples: Samples, name: str, **labels: str) -> float:
    """The one sample with those labels."""
    rows = [value for have, value in samples[name].items() if set(labels.items()) <= have]
    assert len(rows) == 1, (name, labels, rows)
    return rows[0]


def test_a_service_without_frames_has_no_series_without_a_value() -> None:
    with serving({"gone": "file:///nowhere/x.mp4"}, ready=False) as served:
        samples = parse(served.get("/metrics").body)
    assert "pinhole_frame_age_seconds" not in samples
    assert not any(name.startswith("pinhole_stage_seconds") for name in samples)
    assert "pinhole_link_bytes_total" not in samples, "no link on this device"
    assert only(samples, "pinhole_frames_captured_total", camera="gone") == 0
    assert only(samples, "pinhole_viewers", camera="gone", kind="mjpeg") == 0
    assert only(samples, "pinhole_build_info", backend="opencv", memory="host") == 1
    assert sum(samples["pinhole_camera_state"].values()) == 1


COUNTED = {
    "age": "frame_age_seconds", "drops": "frames_dropped", "dropped": "frames_dropped",
    "copied per frame": "copied_bytes", "link in per frame": "link_bytes",
    "link out per frame": "link_bytes", "pinned memory": "pinned_bytes",
    "frames processed": "frames_processed", "viewers": "viewers", "reconnects": "reconnects",
}  # fmt: skip


def test_the_page_says_what_a_number_counts_in_the_words_of_the_metrics() -> None:
    script = (Path(__file__).parents[2] / "service" / "static" / "meanings.js").read_text(encoding="utf-8")
    counts, stages = (
        dict(re.findall(r'^  "([^"]+)": "([^"]+)",$', part, re.MULTILINE)) for part in script.split("STAGES")
    )
    assert stages == STAGE_MEANINGS
    assert list(stages) == list(STAGES)
    helps = {family.name: family.documentation for family in PinholeCollector(Snapshot(NullDevice(), ())).collect()}
    for number, metric in COUNTED.items():
        words = helps[f"pinhole_{metric}"].rstrip(".").removesuffix(", by reason").removesuffix(", by path")
        assert counts[number].startswith(words), number
    page = (Path(__file__).parents[2] / "service" / "static" / "index.html").read_text(encoding="utf-8")
    for column in ("p50", "p99", "max"):
        assert f'title="{counts[column]}">{column}</th>' in page


def test_b106_counters_are_exact_and_never_go_down_and_a_dip_shows_in_the_age() -> None:
    block = Block()
    maker = Maker(lambda: FakeSource([*pictures(40), block, *pictures(5)]))
    with serving({"cam": "fake://"}, device=NullDevice(), source_factory=maker, ready=False) as served:
        assert block.entered.wait(10)
        results = ("pinhole_frames_processed_total", "pinhole_frames_dropped_total")
        served.until(lambda: sum(map(served.metric, results)) == 40)
        first = parse(served.get("/metrics").body)
        ages = [served.metric("pinhole_frame_age_seconds")]
        served.until(lambda: served.metric("pinhole_frame_age_seconds") > ages[0] + 0.3)
        block.release.set()
        served.until(lambda: served.metric("pinhole_frames_captured_total") == 46)
        served.until(lambda: served.metric("pinhole_camera_state", state="ended") == 1)
        last = parse(served.get("/metrics").body)
    assert only(first, "pinhole_frames_captured_total") == 40
    dropped = sum(last.get("pinhole_frames_dropped_total", {}).values())
    assert only(last, "pinhole_frames_processed_total") + dropped == 46
    for name, rows in first.items():
        if name.endswith("_total"):
            for labels, value in rows.items():
                assert last[name][labels] >= value, name


def test_stages_are_histograms_that_add_up() -> None:
    with serving({"cam": SMALL_CARD}) as served:
        served.get("/snapshot")
        served.until(lambda: served.metric("pinhole_stage_seconds_count", stage="total") > 3)
        samples = parse(served.get("/metrics").body)
    for stage in ("capture", "queue", "process", "total", "encode"):
        count = only(samples, "pinhole_stage_seconds_count", stage=stage)
        rows = samples["pinhole_stage_seconds_bucket"].items()
        ordered = sorted((float(dict(labels)["le"]), value) for labels, value in rows if ("stage", stage) in labels)
        values = [value for _, value in ordered]
        assert values == sorted(values), "cumulative"
        assert ordered[-1] == (float("inf"), count)
        assert count > 0
        assert only(samples, "pinhole_stage_seconds_sum", stage=stage) > 0
    assert not any(("stage", "gpu") in labels for labels in samples["pinhole_stage_seconds_count"])


def test_buckets_count_what_was_recorded() -> None:
    histogram = LogHistogram()
    for value_us in (10, 100, 340, 360, 9_000_000):
        histogram.record(value_us * 1000)
    found = dict(buckets(histogram.snapshot()))
    assert found["5e-05"] == 1
    assert found["0.0002"] == 2
    assert found["0.00035"] == 3
    assert found["0.0005"] == 4
    assert (found["5"], found["+Inf"]) == (4, 5)
    assert len(found) == len(BOUNDS_US) + 1


@pytest.mark.leaks_allowed("the shared service makes its worker threads when needed; checked at its end")
@pytest.mark.parametrize("path", ["/cameras/one/snapshot?quality=33", "/cameras/one/snapshot?quality=33&width=160"])
def test_b01_encoding_is_counted_and_viewers_are_not_snapshots(served: Served, path: str) -> None:
    before = served.metric("pinhole_frames_encoded_total", camera="one")
    served.get(path)
    assert served.metric("pinhole_frames_encoded_total", camera="one") == before + 1
    assert served.metric("pinhole_viewers", camera="one") == 0


def test_labels_with_odd_names_are_escaped() -> None:
    device = NullDevice()
    device.name = 'a "quoted" \\ name\nwith a line'
    samples = parse(render_metrics(Snapshot(device, ())))
    assert only(samples, "pinhole_build_info", device=device.name) == 1
