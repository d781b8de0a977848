"""What the doctor recommends: the best that was measured, with figures, within its time."""

from __future__ import annotations

import json

from kernels import advice
from kernels.advice import BUDGET_S, advise
from kernels.device import Device, HostDevice, NullDevice
from kernels.errors import DeviceUnavailableError
from kernels.probe import run_probe
from kernels.transfer_host import HostMachine


def opened(name: str) -> tuple[Device, str]:
    """Frames of 2 ms in place, of 8 by pageable copies; nothing is registered here."""
    if name == "registered":
        raise DeviceUnavailableError("this device cannot register")
    return NullDevice({"zero_copy": 0.002, "pageable": 0.008}[name]), "asked for"


def test_the_best_is_recommended_with_what_it_saves_and_what_else_there_is() -> None:
    answer = advise([HostMachine()], ("zero_copy", "registered", "pageable"), opened)
    facts = json.loads(json.dumps(answer.facts))
    assert answer.status == "ok"
    assert facts["memory"] == "zero_copy"
    assert set(facts["frame"]["p50_us"]) == {"zero_copy", "pageable"}
    assert facts["absent"] == {"registered": "this device cannot register"}
    saved = facts["frame"]["saved_over_pageable_percent"]
    assert 0 < saved < 100
    assert f"{saved:.0f} % less than by pageable copies; pageable " in answer.found
    assert set(facts["transfer"]["gb_s"]) == {"host → host, memcpy"}


def test_nothing_new_is_begun_when_the_time_is_up() -> None:
    now = iter([0.0, 1.0, BUDGET_S + 1, BUDGET_S + 1, BUDGET_S + 2])
    answer = advise([HostMachine()], ("zero_copy", "pageable"), opened, lambda: next(now))
    assert set(answer.facts["frame"]["p50_us"]) == {"zero_copy"}
    assert answer.facts["transfer"]["gb_s"] == {}


def test_where_nothing_can_be_measured_the_reason_is_the_answer() -> None:
    answer = advise([], ("registered",), opened)
    assert (answer.status, answer.found) == ("absent", "nothing could be measured: this device cannot register")


def test_without_a_gpu_host_is_what_there_is() -> None:
    answer = advise([], ("host",), lambda name: (HostDevice(), "asked for"))
    assert answer.found.startswith("it is what there is: a 1920x1080 BGR8 frame through std4 takes ")
    assert answer.facts["memory"] == "host"


def test_the_process_answers_whatever_happens_in_it() -> None:
    found = run_probe("gpu", arguments=("-c", PRETENDING))
    assert found.status == "failed"
    assert "RuntimeError: the driver is odd" in found.found
    assert "auto" not in advice.CANDIDATES


PRETENDING = """
import runpy, sys
import kernels.device
def odd(*_, **__):
    raise RuntimeError("the driver is odd")
kernels.device.CudaDevice = odd
sys.argv = ["advice", "gpu"]
runpy.run_module("kernels.advice", run_name="__main__")
"""
