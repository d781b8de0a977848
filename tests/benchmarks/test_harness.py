"""What the benchmarks' figures rest on: percentiles, the viewer's parser, the load meter, the published files."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import harness
from tests.benchmarks.bench_host import parts


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([1, 50, 90, 99, 99.9, 100]))
def test_percentile_is_numpys_by_nearest_rank(values: list[float], percent: float) -> None:
    assert harness.percentile(values, percent) == np.percentile(values, percent, method="inverted_cdf")


def test_tables_are_markdown_with_all_rows() -> None:
    text = harness.table(["case", "p50 µs"], [["blur", 1234.5], ["a longer name", 3.14159], ["n", 7]])
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1, "columns are aligned"
    assert [cell.strip() for cell in lines[3].strip("|").split("|")] == ["a longer name", "3.14"]
    assert lines[1].endswith(":|")


def test_the_viewer_parses_parts_whatever_their_bytes() -> None:
    bodies = [b"", b"\r\n--frame\r\n", os.urandom(1000)]
    stream = io.BytesIO()
    stream.write(b"--frame\r\n")
    for number, body in enumerate(bodies):
        head = f"Content-Type: image/jpeg\r\nContent-Length: {len(body)}\r\nX-Frame-Sequence: {number}\r\n\r\n"
        stream.write(head.encode() + body + b"\r\n--frame\r\n")
    stream.seek(0)
    before_s = time.time()
    seen = [next(frames) for frames in [parts(stream)] for _ in bodies]
    assert [(headers["x-frame-sequence"], length) for headers, length, _ in seen] == [
        (str(number), len(body)) for number, body in enumerate(bodies)
    ]
    assert all(before_s <= at_s <= time.time() for _, _, at_s in seen)


def test_the_load_meter_counts_this_process() -> None:
    meter = harness.LoadMeter(me=os.getpid())
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    load = meter.stop()
    assert 0.2 <= load.cpu_s["me"] <= 1.0
    assert load.seconds >= 0.25


def test_published_files_say_where_they_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harness.publish("bench_x", "Is it quick?", harness.table(["case", "ms"], [["a", 1.5]]), {"median": 1.5}, tmp_path)
    record = json.loads((tmp_path / "bench_x.json").read_text())
    assert record["median"] == 1.5
    assert {"date", "commit", "command", "cpu", "cores", "gpu", "packages"} <= set(record["environment"])
    text = (tmp_path / "bench_x.md").read_text()
    assert "Is it quick?" in text
    assert "| a    | 1.50 |" in text
    assert text.strip() in capsys.readouterr().out
