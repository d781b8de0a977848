"""``pinhole bench chain``: its report, and what it refuses; a real run is tiny and on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from kernels.bench import BY_CUPY, BY_HAND, FUSED, ON_CPU, UNFUSED, CaseFigures, Figures, Link, WayFigures
from kernels.bench_case import STANDARD, make_case, missing_ops
from kernels.bench_opencv import OPENCV
from kernels.formats import BGR8
from kernels.plan import reads_in_place
from service.bench import to_json, to_markdown, to_svg
from service.chart import Group, bar_chart
from service.cli import main
from service.environment import Load, LoadMeter, describe, environment

LOAD = Load(2.0, 1.0, None, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def bench(*args: str) -> Result:
    result = CliRunner().invoke(main, ["bench", "chain", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def figures() -> Figures:
    """Of a GPU, three turns: Pinhole 2, 3 and 4 times the floor, the others over that."""
    case = make_case("sharpen | gamma", BGR8, 64, 32)
    one = CaseFigures(case, floor_us=[100.0, 110.0, 50.0], alone_us=[120.0] * 3)
    one.ways = {
        FUSED: WayFigures([200.0, 330.0, 200.0], [220.0, 340.0, 210.0], 30),
        UNFUSED: WayFigures([400.0, 660.0, 400.0], [401.0, 661.0, 401.0], 30),
        BY_CUPY: WayFigures(left_out="sharpen"),
        ON_CPU: WayFigures([2000.0, 3300.0, 2000.0], [2001.0, 3301.0, 2001.0], 9),
    }
    one.kernels_us, one.kernels_plan = [1.0, 3.0, 2.0], reads_in_place(case.plan)
    one.cold_ms, one.warm_ms = [900.0, 700.0, 800.0], [30.0, 20.0, 40.0]
    return Figures([one], [Link(50.0, 52.0, 61.44)] * 3)


def rows(text: str, start: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"| {start}"))
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first + 2 : end]]


def test_the_table_has_medians_and_ratios_of_each_turns_own() -> None:
    text = to_markdown(figures())
    case = "sharpen \\| gamma, 64x32 BGR8"
    assert [row[-6:] for row in rows(text.replace("\\|", "/"), "case ")] == [
        ["floor", "100.0", "", "1.00", "0.00", ""],
        [FUSED, "200.0", "220.0", "3.00", "150.0", "1.00"],
        [UNFUSED, "400.0", "401.0", "6.00", "350.0", "2.00"],
        [ON_CPU, "2000", "2001", "30.0", "1950", "10.0"],
    ]
    assert case in text, "a chain's bars do not end a cell"
    # 64·32·3 bytes in and as many out in 2 µs: 6.1 GB/s, a tenth of the copy's 61.44.
    assert rows(text.replace("\\|", "/"), "kernels")[0][1:] == ["1", "2.00", "0.01", "0.01", "6.14", "10%"]
    assert rows(text.replace("\\|", "/"), "start")[0][1:] == ["2", "800.0", "900.0", "30.0"]
    assert f"- sharpen | gamma, 64x32 BGR8: {BY_CUPY}, nothing there for sharpen" in text
    assert "50.0 GB/s in, 52.0 GB/s out" in text


def test_the_json_holds_every_turn() -> None:
    report = json.loads(json.dumps(to_json(figures(), {"date": "today"}, LOAD)))
    assert report["schema"] == 1
    assert report["load"]["loadavg_after"] == [0.4, 0.5, 0.6]
    (one,) = report["cases"]
    assert one["ways"][FUSED]["runs"]["p50_us"] == [200.0, 330.0, 200.0]
    assert one["ways"][FUSED]["over_floor"] == 3.0
    assert one["ways"][UNFUSED]["over_pinhole"] == 2.0
    assert one["ways"][BY_CUPY] == {"left_out": "sharpen"}
    assert (one["bytes_in"], one["bytes_out"], one["floor_us"]) == (6144, 6144, 100.0)
    assert one["start"]["runs"]["cold_ms"] == [900.0, 700.0, 800.0]
    assert one["kernels"]["gb_s"] == pytest.approx(6.144)


def test_the_chart_is_svg_whose_bars_are_as_long_as_what_they_stand_for() -> None:
    groups = [Group("a <b> & c", (("one", 50.0), ("two", 200.0)), ("floor", 100.0)), Group("none", (("one", 0.0),))]
    root = ElementTree.fromstring(bar_chart("T <", groups, "µs"))
    names = "{http://www.w3.org/2000/svg}"
    bars = root.findall(f"{names}rect")
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.2)
    (line,) = root.findall(f"{names}line")
    assert float(line.attrib["x1"]) - float(bars[0].attrib["x"]) == pytest.approx(widths[1] / 2, abs=0.2)
    assert bars[0].attrib["fill"] == bars[2].attrib["fill"] != bars[1].attrib["fill"], "a colour for each label"
    texts = [element.text for element in root.findall(f"{names}text")]
    assert "a <b> & c" in texts
    assert "200 µs" in texts
    assert max(float(bar.attrib["x"]) + float(bar.attrib["width"]) for bar in bars) < float(root.attrib["width"])
    assert ElementTree.fromstring(to_svg(figures())) is not None


def test_a_real_run_on_the_cpu_writes_all_its_files(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    chains = ("--chain", "std4", "--chain", "median", "--chain", "sharpen|gamma(gamma=2.0)")
    sizes = ("--size", "33x17", "--size", "64x32", "--format", "bgr8", "--format", "NV12")
    result = bench("--memory", "host", *chains, *sizes, "--frames", "4", "--runs", "2", "--out", str(out), "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report == json.loads((out / "bench_chain.json").read_text())
    assert len(report["cases"]) == 3 * 2 * 2
    names = [one["name"] for one in report["cases"]]
    assert names[:3] == ["std4", "median", "sharpen | gamma(gamma=2.0)"]
    for one in report["cases"]:
        assert set(one["ways"]) == {ON_CPU, BY_HAND}
        assert one["ways"][ON_CPU]["frames"] == 8
        assert one["ways"][ON_CPU]["p50_us"] > 0
        assert one["floor_us"] is None
    by_hand = report["cases"][0]["ways"][BY_HAND]
    assert by_hand["over_by_hand"] == 1.0
    assert "left_out" in report["cases"][1]["ways"][BY_HAND]
    text = (out / "bench_chain.md").read_text()
    assert "× by hand" in text
    assert "over floor" not in text
    assert "median, 33x17 BGR8: OpenCV by hand, nothing there for median" in text
    ElementTree.parse(out / "bench_chain.svg")
    assert "run 2 of 2: median, 33x17 BGR8" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--size", "big"), "--size: 'big' is no size"),
        (("--size", "0x7"), "--size: 0x7 is not a size"),
        (("--size", "99999x7"), "--size: 99999x7 is not a size"),
        (("--format", "NV21"), "--format: unknown pixel format 'NV21' (did you mean 'NV12'?)"),
        (("--chain", "gaussian_blurr"), "did you mean 'gaussian_blur'"),
        (
            ("--chain", "std5"),
            "unknown chain or op 'std5' (did you mean 'std8'?); allowed: point, std4, std8, or a chain",
        ),
        (("--chain", "zzz"), "allowed: adaptive_threshold"),
        (("--chain", "gaussian_blur(ksize=4)"), "--chain[0].params.ksize"),
        (("--chain", "gamma", "--target", "YUYV"), "--target: YUYV cannot be made of BGR8"),
        (("--chain", "gamma", "--target", "no"), "--target: unknown pixel format"),
        (("--memory", "host", "--kernels"), "--kernels: the memory strategy is host"),
        (("--memory", "host", "--result", "device"), "--result device: "),
        (("--memory", "host", "--runs", "0"), "--runs"),
        (("--memory", "host", "--frames", "-1"), "--frames"),
        (("--memory", "managed"), "--memory"),
        (("--memory", "host", "--out", "/proc/none/there"), "--out: /proc/none/there: "),
        (("--ops", "/nowhere"), "--ops: /nowhere: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_acceptable_is_said_before_anything_is_measured(args: tuple[str, ...], said: str) -> None:
    result = bench(*args)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "run 1" not in result.output
    assert result.stdout == ""


def test_without_a_gpu_zero_copy_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.device.cuda_absence", lambda index=0: "there is none")
    result = bench("--memory", "zero_copy", "--size", "8x8")
    assert result.exit_code == 1
    assert "there is none" in result.stderr


def test_the_help_says_what_opencv_by_hand_can_be_compared_for() -> None:
    text = " ".join(bench("--help").stdout.split())
    assert f"OpenCV by hand has lines for {', '.join(OPENCV)};" in text


def test_standard_chains_whose_operations_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STANDARD, "std8", "sharpen | not_there | not_here")
    assert missing_ops("std8") == ["not_there", "not_here"]
    result = bench("--memory", "host", "--size", "8x8", "--format", "BGR8", "--frames", "1", "--runs", "1", "--json")
    assert result.exit_code == 0
    assert "std8 is left out: there is no not_there, not_here" in result.stderr
    assert [one["name"] for one in json.loads(result.stdout)["cases"]] == ["point", "std4"]


def test_the_environment_is_gathered_also_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: Any, **kwargs: Any) -> Any:
        raise FileNotFoundError("no such program")

    monkeypatch.setattr("subprocess.run", absent)
    monkeypatch.delenv("PINHOLE_COMMIT", raising=False)
    record = environment("pinhole bench chain")
    assert record["commit"] is None
    assert record["gpu"] is None
    assert "commit unknown" in describe(record)
    monkeypatch.setenv("PINHOLE_COMMIT", "abc123")
    assert environment()["commit"] == "abc123"


def test_the_load_meter_counts_this_process() -> None:
    meter = LoadMeter()
    sum(range(3_000_000))
    load = meter.stop()
    assert 0 < load.own_cpu_s <= load.seconds * 64
    assert load.others_cpu_s is None or load.others_cpu_s >= 0
    assert "others" not in str(LOAD)
