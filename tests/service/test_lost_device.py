"""A device that is lost for good ends the service, with a code that says so."""

from __future__ import annotations

import threading
import time

import pytest
from click.testing import CliRunner

from kernels.device import NullDevice
from kernels.errors import DeviceFailedError, DeviceLostError
from service import cli
from service.cli import DEVICE_LOST, OnSignal, main, run
from service.config import load
from service.config_cli import default_cameras
from service.config_schema import Value

LOST = DeviceFailedError("cudaEventSynchronize", 700, "cudaErrorIllegalAddress", True, "restart it")


def losing_device(after_s: float) -> NullDevice:
    device = NullDevice()
    threading.Timer(after_s, lambda: setattr(device, "fail_wait", LOST)).start()
    return device


@pytest.mark.parametrize("after_s", [0.0, 0.3])
def test_the_service_ends_and_says_why(monkeypatch: pytest.MonkeyPatch, after_s: float) -> None:
    """Also where it is lost before the first viewer could come."""
    device = losing_device(after_s)
    monkeypatch.setattr(cli, "open_device", lambda memory: (device, "for a test"))
    flags = {
        ("cameras", "a", "uri"): Value("testcard://?size=352x128&fps=99", "--camera a"),
        ("port",): Value(0, "--port"),
    }
    effective = load(flags, default_cameras, None, {})
    started = time.monotonic()
    with pytest.raises(DeviceLostError, match="IllegalAddress"):
        run(effective, OnSignal())
    assert time.monotonic() - started < 20
    assert device.lost is LOST
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("cap-", "stage-"))]


def test_the_code_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> None:
        raise DeviceLostError(f"the GPU was lost: {LOST}")

    monkeypatch.setattr(cli, "run", lose)

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(cli, "set_up_logging", lambda *_, **__: None)
    monkeypatch.setattr(cli, "_leave_at_once", leave)
    result = CliRunner().invoke(main, ["serve", "--camera", "a=testcard://"])
    assert result.exit_code == DEVICE_LOST == 3
    assert "IllegalAddress" in result.output
