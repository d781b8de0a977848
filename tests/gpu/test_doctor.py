"""The doctor's proof on a real GPU: 42 doubled in every kind of memory the device has."""

from __future__ import annotations

import pytest

from service.doctor import examine

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
