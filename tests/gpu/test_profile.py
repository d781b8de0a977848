"""The trace and the profiler on a real GPU, over HTTP."""

from __future__ import annotations

import pytest

from kernels.chain import parse_chain
from kernels.device import CudaDevice
from kernels.profiler import RANGES
from tests.helpers.inprocess import serving
from tests.helpers.server import SMALL_CARD
from tests.service.test_trace import check

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("memory", ["zero_copy", "staged"])
def test_the_device_s_time_lies_within_the_stage_s(memory: str) -> None:
    device = CudaDevice(memory=memory)
    with serving({"one": SMALL_CARD}, chains={"one": parse_chain("gaussian_blur | sobel")}, device=device) as served:
        served.until(lambda: served.engine.get("one").statistics().processed >= 30)
        stages = check(served.get("/api/v1/cameras/one/trace?frames=20").json())
    process = {event["args"]["frame"]: event for event in stages["process"]}
    assert len(stages["gpu"]) == len(process) == 20
    for event in stages["gpu"]:
        within, said = process[event["args"]["frame"]], event["args"]
        assert within["ts"] - 1e-3 <= event["ts"]
        assert event["ts"] + event["dur"] == pytest.approx(within["ts"] + within["dur"], abs=1e-3)
        assert said["uncertainty_us"] == pytest.approx(within["dur"] - event["dur"], abs=1e-3)
        assert event["dur"] == pytest.approx(min(said["measured_us"], within["dur"]), abs=1e-3)
        assert event["dur"] > 0


def test_a_profile_starts_and_ends_and_frames_go_on() -> None:
    with serving({"one": SMALL_CARD}, device=CudaDevice()) as served:
        reply = served.request("POST", "/api/v1/profile", {"action": "start", "seconds": 60})
        assert (reply.status, reply.json()) == (202, {"running": True, "seconds": 60, "nvtx": True})
        assert served.request("POST", "/api/v1/profile", {"action": "start"}).status == 409
        before = served.engine.get("one").statistics().processed
        served.until(lambda: served.engine.get("one").statistics().processed >= before + 20)
        reply = served.request("POST", "/api/v1/profile", {"action": "stop"})
        assert reply.json() == {"running": False, "stopped": True}
        assert not RANGES.on
        assert served.get("/api/v1/cameras/one").json()["state"] == "running"
