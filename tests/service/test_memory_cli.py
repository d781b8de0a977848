"""``pinhole bench transfer`` and ``frame``: their reports, what they refuse, and an end by Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from kernels.bench import BY_HAND, WayFigures
from kernels.bench_case import make_case
from kernels.bench_frame import BASELINE, FrameCase, FrameFigures
from kernels.formats import BGR8
from kernels.transfer import Figures, Machine, Options, Peak, Skipped, measure
from kernels.transfer import Result as Timed
from kernels.transfer_host import HostMachine
from kernels.transfer_plan import CUDA_WAYS, HOST_WAYS, size_text
from service import bench_frame, bench_transfer, memory_cli
from service.bar_matrix import to_png, to_svg
from service.bench_transfer import digits, saved_text, time_text
from service.cli import main
from service.environment import Load
from service.interrupt import interruptible
from service.progress import progress

LOAD = Load(2.0, 1.0, None, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
RECORD: dict[str, Any] = {
    "date": "today", "version": "1", "commit": "abc", "command": "pinhole bench", "cpu": "a CPU", "cores": 2,
    "memory_gib": 1.0, "gpu": None, "kernel": "6", "machine": "x", "python": "3", "packages": {},
}  # fmt: skip


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.device.cuda_absence", lambda index=0: "there is none here")


def bench(*args: str) -> Result:
    result = CliRunner().invoke(main, ["bench", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the table below that heading."""
    lines = text.partition(f"## {title}\n\n")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def transfers() -> Figures:
    """Of a GPU: pageable copies at 10 GB/s, pinned five times that, managed memory a tenth, shared memory skipped."""
    figures = Figures(peak=Peak(50.0, 62.5, 40.0))
    for way in CUDA_WAYS:
        for nbytes in (10**6, 10**9):
            if way.memory == "registered shm" and nbytes == 10**9:
                figures.skipped.append(Skipped(way, nbytes, "needs 1 GB of something"))
                continue
            rate = 1.0 if way.memory == "managed" else 10.0 if way.is_baseline else 49.0 + 0.001 * len(way.name)
            taken = nbytes / 1e9 / rate
            figures.results.append(Timed(way, nbytes, (taken, taken, 3 * taken), 0.25))
    figures.skipped.append(Skipped(HOST_WAYS[1], 10**6, "byte 7 of 1000000 did not arrive", broken=True))
    return figures


def test_the_tables_of_transfers_have_gains_and_the_peaks_share() -> None:
    figures = transfers()
    report = bench_transfer.to_json(figures, None, RECORD, LOAD)
    text = bench_transfer.to_text(report, figures)
    by_way = {(row[0], row[1]): row[2:] for row in rows(text, "host → device")}
    assert by_way["pageable, cudaMemcpy", "1 MB"] == ["100 µs", "10.0", "", "20 %", "3"]
    assert by_way["pinned, cudaMemcpy", "1 GB"] == ["20.4 ms", "49.0", "80 %", "98 %", "3"]
    assert by_way["managed, first touch", "1 MB"] == ["1.00 ms", "1.0", "10.0× as long", "2 %", "3"]
    assert ("registered shared memory, in place", "1 GB") not in by_way
    best = {row[0]: row[1:] for row in rows(text, "The fastest")}
    longest = max(
        (way for way in CUDA_WAYS if way.direction == "out" and way.memory[0] in "pr"), key=lambda w: len(w.name)
    )
    assert best["device → host, 1 MB"] == [longest.name, "20.4 µs", "49.0", "80 %", "78 %"]
    assert "- Skipped: host → device, registered shared memory, in place, 1 GB: needs 1 GB of something" in text
    assert "- FAILED: host → host, cv2.copyTo, 1 MB: byte 7 of 1000000 did not arrive" in text
    assert "50.0 GB/s in, 62.5 out, 40.0 each way at once" in text


def test_the_json_of_transfers_holds_every_run_and_what_was_skipped() -> None:
    figures = transfers()
    report = json.loads(json.dumps(bench_transfer.to_json(figures, None, RECORD, LOAD)))
    assert (report["schema"], report["interrupted"], report["failure"], report["gpu_absent"]) == (1, False, "", None)
    assert report["peak"] == {"in_gb_s": 50.0, "out_gb_s": 62.5, "both_gb_s": 40.0}
    one = next(r for r in report["results"] if r["way"] == "pinned, async, 4 streams" and r["direction"] == "out")
    assert (one["bytes"], one["streams"], one["setup_ms"], one["memory"]) == (10**6, 4, 250.0, "pinned")
    assert one["runs_us"][2] == pytest.approx(3 * one["p50_us"])
    assert one["saved_percent"] == pytest.approx(100 * (1 - 10 / one["gb_s"]))
    assert one["peak_percent"] == pytest.approx(100 * one["gb_s"] / 62.5)
    assert one["p99_us"] == one["runs_us"][2]
    assert [r["broken"] for r in report["skipped"]] == [False] * 4 + [True]
    assert all(r["p50_us"] > 0 for r in report["results"])


def test_the_picture_of_transfers_marks_the_fastest_and_the_baseline() -> None:
    figures = transfers()
    drawn = bench_transfer.picture(figures, ["a machine"])
    svg = to_svg(drawn)
    names = "{http://www.w3.org/2000/svg}"
    classes = [one.attrib["class"] for one in ElementTree.fromstring(svg).findall(f"{names}rect")]
    assert classes.count("best") == classes.count("baseline") == 3 * 2
    assert classes.count("track") == len(figures.results)
    assert "a full bar: the link's peak, 62.5 GB/s" in svg
    assert to_png(drawn).startswith(b"\x89PNG")
    assert to_svg(bench_transfer.picture(Figures(), [])), "nothing measured is a picture too"


def frames() -> FrameFigures:
    one, two = (FrameCase(make_case("std4", BGR8, *size)) for size in ((64, 48), (640, 480)))
    for case, factor in ((one, 1.0), (two, 10.0)):
        for way, p50 in (("zero_copy", 20.0), (BASELINE, 100.0), ("unified", 400.0), (BY_HAND, 200.0)):
            case.ways[way] = WayFigures([factor * p50] * 3, [2 * factor * p50] * 3, 30)
    two.ways[BY_HAND] = WayFigures(left_out="nothing there for flip")
    return FrameFigures([one, two], {"zero_copy": "a GPU"}, {"staged": "not offered here"})


def test_the_tables_of_frames_have_savings_over_pageable_copies_and_opencv() -> None:
    figures = frames()
    report = json.loads(json.dumps(bench_frame.to_json(figures, RECORD, LOAD)))
    text = bench_frame.to_text(report, figures)
    table = {(row[0], row[1]): row[2:] for row in rows(text, "std4, BGR8")}
    assert table["zero_copy, the best", "64x48"] == ["20.0", "40.0", "80 %", "90 %", "30"]
    assert table[BASELINE, "64x48"] == ["100", "200", "", "50 %", "30"]
    assert table["unified", "640x480"] == ["4000", "8000", "4.00× as long", "", "30"]
    assert (BY_HAND, "640x480") not in table
    assert "- Not measured: staged: not offered here" in text
    assert f"- Left out: std4, 640x480 BGR8, {BY_HAND}: nothing there for flip" in text
    first, second = report["cases"]
    assert first["best"] == "zero_copy"
    assert first["ways"]["zero_copy"]["saved_over_pageable_percent"] == 80
    assert first["ways"]["zero_copy"]["runs"]["p50_us"] == [20.0] * 3
    assert second["ways"][BY_HAND] == {"left_out": "nothing there for flip"}
    svg = to_svg(bench_frame.picture(figures, []))
    assert "time saved over pageable" in svg
    assert svg.count('class="best"') == 2


@pytest.mark.usefixtures("no_gpu")
def test_a_real_run_of_transfers_without_a_gpu_says_what_it_could_not_do(tmp_path: Path) -> None:
    out = {name: tmp_path / f"x.{name}" for name in ("json", "html", "png")}
    files = [part for name, path in out.items() for part in (f"--{name}", str(path))]
    result = bench("transfer", "--sizes", "4Ki,100K", "--repeat", "2", *files)
    assert result.exit_code == 0, result.output
    assert "no GPU: there is none here" in result.stderr
    assert "- Not measured: everything between host and device: pageable, pinned, mapped" in result.stdout
    report = json.loads(out["json"].read_text())
    assert {one["direction"] for one in report["results"]} == {"host"}
    assert len(report["results"]) == 2 * len(HOST_WAYS)
    assert all(len(one["runs_us"]) == 2 for one in report["results"])
    assert report["gpu_absent"] == "there is none here"
    assert rows(result.stdout, "host → host")[0][:2] == ["memcpy", "4 KiB"]
    html = out["html"].read_text()
    assert not re.search(r"(src|href)\s*=|<script|url\(", html), "it needs nothing else"
    assert "memcpy into fresh memory" in html
    assert out["png"].read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_gpu")
def test_a_real_run_of_frames_without_a_gpu_has_the_host_beside_opencv(tmp_path: Path) -> None:
    file = tmp_path / "f.html"
    sizes = ("--sizes", "33x17,64x32", "--format", "nv12", "--chain", "std4", "--chain", "median")
    result = bench("frame", *sizes, "--frames", "2", "--runs", "2", "--json", "-", "--html", str(file))
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [one["name"] for one in report["cases"]] == ["std4", "std4", "median", "median"]
    for one in report["cases"]:
        assert one["ways"]["host"]["frames"] == 4
        assert one["best"] == "host"
    assert "there is none here" in report["absent"]["zero_copy"]
    assert "left_out" in report["cases"][3]["ways"][BY_HAND]
    assert "std4, NV12" in file.read_text()
    assert bench("frame", "--memory", "zero_copy", "--sizes", "8x8", "--frames", "1").exit_code == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("transfer", "--sizes", "1Q"), "--sizes: '1Q' is no size; allowed: whole numbers with K, M, G"),
        (("transfer", "--sizes", "1M,,2M"), "--sizes: '' is no size"),
        (("transfer", "--sizes", "1000G"), "--sizes: '1000G' is out of range"),
        (("transfer", "--max-pinned", "much"), "--max-pinned: 'much' is no size"),
        (("transfer", "--repeat", "0"), "--repeat"),
        (("transfer", "--json", "/nowhere/x.json"), "--json: /nowhere/x.json cannot be written"),
        (("transfer", "--png", "/nowhere/x.png"), "--png: /nowhere/x.png cannot be written"),
        (("frame", "--sizes", "640"), "--sizes: '640' is no size; allowed: WIDTHxHEIGHT"),
        (("frame", "--sizes", "8x8,0x7"), "--sizes: 0x7 is not a size"),
        (("frame", "--format", "NV21"), "did you mean 'NV12'?"),
        (("frame", "--chain", "gaussian_blurr"), "did you mean 'gaussian_blur'"),
        (("frame", "--memory", "managed"), "--memory"),
        (("frame", "--html", "/nowhere/x.html"), "--html: /nowhere/x.html cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_acceptable_is_said_before_anything_is_measured(
    args: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_cli, "measure", None)
    monkeypatch.setattr(memory_cli, "measure_frames", None)
    result = bench(*args)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""


def test_the_pinned_budget_is_the_services_own_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def machines(budget: int, limit: str) -> tuple[list[Machine], str | None]:
        asked.append(budget)
        return [], "not asked for"

    monkeypatch.setattr(memory_cli, "_machines", machines)
    monkeypatch.setattr(memory_cli, "sensible_slot_bytes", lambda: 77)
    bench("transfer")
    monkeypatch.setenv("PINHOLE_LIMITS__MAX_MEMORY_BYTES", "16777216")
    bench("transfer")
    bench("transfer", "--max-pinned", "2G")
    assert asked == [77, 1 << 24, 2 * 10**9]


def test_bytes_that_did_not_arrive_are_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_cli, "_machines", lambda *_: ([], None))
    monkeypatch.setattr(memory_cli, "measure", lambda *_: transfers())
    assert bench("transfer").exit_code == 1


def test_what_was_measured_is_printed_though_a_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_cli, "_machines", lambda *_: ([HostMachine()], "none"))
    monkeypatch.setattr(memory_cli, "_check_files", lambda *_: None)
    result = bench("transfer", "--sizes", "4Ki", "--repeat", "1", "--html", str(tmp_path / "none" / "x.html"))
    assert result.exit_code == 2
    assert "x.html: No such file" in result.stderr
    assert "memcpy" in result.stdout


INTERRUPTING = """
import os, signal, sys
from service import memory_cli
from service.cli import main
from kernels import transfer
real = transfer._Run.way
def way(self, held, one, nbytes):
    real(self, held, one, nbytes)
    if one.how == "copyTo":
        os.kill(os.getpid(), signal.SIGINT)
transfer._Run.way = way
memory_cli._machines = lambda *_: ([transfer_host.HostMachine()], "none here")
from kernels import transfer_host
main(["bench", "transfer", "--sizes", "4Ki,8Ki", "--repeat", "1"])
"""


def test_ctrl_c_ends_with_what_was_measured_so_far() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING], capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert [row[:2] for row in rows(done.stdout, "host → host")] == [["memcpy", "4 KiB"], ["cv2.copyTo", "4 KiB"]]
    assert "- Interrupted: what was measured until then." in done.stdout


def test_the_first_ctrl_c_asks_and_the_second_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(5)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    seen: list[bool] = []

    def elsewhere() -> None:
        with interruptible() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [False], "signals are the main thread's"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_nothing_in_a_pipe() -> None:
    for stream in (io.StringIO(), Terminal()):
        with progress(8, stream) as say:
            figures = measure([HostMachine()], [4096, 8192], Options(1), say)
        shown = stream.getvalue()
        if not stream.isatty():
            assert shown == ""
            continue
        assert len(figures.results) == 8
        assert "100%" in shown
        assert "None" not in shown
        assert f"{size_text(8192)} memcpy into fresh memory" in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (time_text(28.44e-6), "28.4 µs"), (time_text(999.6e-6), "1000 µs"), (time_text(1.8234e-3), "1.82 ms"),
        (time_text(0.145), "145 ms"), (time_text(2.5), "2.50 s"), (digits(9.996), "10.0"), (digits(123456.7), "123457"),
        (saved_text(82.6), "83 %"), (saved_text(0.0), "0 %"), (saved_text(-94.0), "1.94× as long"),
        (saved_text(None), ""),
    ],
)  # fmt: skip
def test_figures_are_said_with_three_digits(text: str, expected: str) -> None:
    assert text == expected
