"""The doctor's proof on a real GPU: 42 doubled in every kind of memory the device has."""

from __future__ import annotations

import pytest

from service.doctor import ask_advice, examine

pytestmark = pytest.mark.gpu


def test_42_doubled_is_84_in_every_kind_of_memory() -> None:
    report = examine()
    shown = [f"{check.name}: {check.found}" for check in report.checks if check.status == "todo" and check.required]
    assert report.ok, shown
    plain = report.to_json()
    assert plain["runs_on"]["backend"] == "cuda"
    attributes = plain["gpu"]["attributes"]
    expected = {"cpu", "device", "mapped", "chain"}
    if attributes["HostRegisterSupported"]:
        expected |= {"registered_numpy", "registered_shm"}
    if attributes["ManagedMemory"]:
        expected |= {"managed"}
    assert {name for name, read in plain["proof"].items() if read == 84} == expected
    for check in report.checks:
        print(f"{check.group} {check.name}: {check.status}: {check.found}")


def test_it_recommends_the_best_of_what_it_measured_within_its_time() -> None:
    answer = ask_advice("gpu")
    print(answer.found, answer.facts)
    assert answer.status == "ok", answer.found
    times = answer.facts["frame"]["p50_us"]
    assert {"zero_copy", "pageable", "host"} <= set(times)
    assert times[answer.facts["memory"]] <= 1.05 * min(times.values())
    assert {"host → device, pageable, cudaMemcpy", "device → host, mapped, written by a kernel"} <= set(
        answer.facts["transfer"]["gb_s"]
    )
    assert answer.facts["measured_s"] < 8, "what has begun when five seconds are over is ended"
