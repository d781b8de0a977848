"""A real camera on a real GPU: whole frames, all memory given back, what the service says of it."""

from __future__ import annotations

import threading

import pytest

from kernels.chain import make_chain, parse_chain
from kernels.device import CudaDevice, WaitMode
from pipeline.camera import Camera, CameraConfig
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import serve

pytestmark = pytest.mark.gpu

FRAMES = 10_000


@pytest.mark.timeout(180)
@pytest.mark.parametrize("wait", ["auto", "block", "spin"])
def test_b45_no_frame_of_ten_thousand_is_torn(wait: WaitMode) -> None:
    """The GPU reads what one CPU thread wrote, another reads what the GPU wrote: both codes of every frame agree."""
    device = CudaDevice()
    chain = parse_chain("gain_offset(gain=0.9, offset=4)")
    camera = Camera(CameraConfig("card", "testcard://?size=352x128&fps=1000", chain, slots=4, wait=wait), device)
    camera.start()
    last, seen = -1, 0
    while seen < FRAMES:
        lease = camera.wait_newer(last, 10)
        assert lease is not None, f"{camera.state}: {camera.cause}"
        with lease:
            last = lease.frame.sequence
            top, bottom = read_codes(lease.result.plane(0))
        assert top is not None
        assert top == bottom
        seen += 1
    statistics = camera.statistics()
    assert statistics.copied_bytes["capture"] == 0
    assert statistics.link_bytes_in > 0
    assert camera.stop(5)
    assert device.ledger.held("pinned") == 0
    assert device.ledger.held("device") == 0


def test_b120_chains_change_while_frames_flow() -> None:
    """Four threads change the chain and its parameters; every frame is whole and carries its chain's version."""
    device = CudaDevice()
    camera = Camera(CameraConfig("card", "testcard://?size=640x360&fps=500", parse_chain("gamma")), device)
    camera.start()
    first = camera.wait_newer(-1, 10)
    assert first is not None
    first.release()
    stop = threading.Event()
    failures: list[BaseException] = []

    def change(index: int) -> None:
        try:
            turn = 0
            while not stop.is_set():
                turn += 1
                if index % 2:
                    camera.set_chain(make_chain([{"op": "gain_offset", "params": {"gain": 0.8 + turn % 4 / 10}}]))
                else:
                    camera.set_chain(parse_chain(f"gaussian_blur(ksize={1 + 2 * (turn % 3)}) | gamma(gamma=1.1)"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=change, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    last, versions = -1, []
    for _ in range(500):
        lease = camera.wait_newer(last, 10)
        assert lease is not None
        with lease:
            last = lease.frame.sequence
            versions.append(lease.frame.chain_version)
            top, bottom = read_codes(lease.result.plane(0))
        assert top == bottom
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert versions == sorted(versions)
    assert len(set(versions)) > 3
    assert camera.stop(5)
    assert device.ledger.held("pinned") == 0
    assert device.ledger.held("device") == 0


def test_starting_and_stopping_gives_all_memory_back() -> None:
    device = CudaDevice()
    for _ in range(20):
        camera = Camera(CameraConfig("card", "testcard://?size=1280x720&fps=200", parse_chain("sobel")), device)
        camera.start()
        lease = camera.wait_newer(-1, 10)
        assert lease is not None
        lease.release()
        assert camera.stop(5)
        assert device.ledger.held("pinned") == 0
        assert device.ledger.held("device") == 0


def test_b74_the_service_says_that_the_gpu_runs() -> None:
    with serve("--camera", "card=testcard://?size=640x360&fps=60", "--chain", "card=gamma(gamma=1.2)") as server:
        state = server.get("/api/v1/state").json()
        assert "H200" in str(state) or "cuda" in str(state)
        assert server.metric("pinhole_link_bytes_total", direction="in") > 0
        assert server.metric("pinhole_pinned_bytes") > 0
        assert server.get("/cameras/card/snapshot").status == 200
        assert server.end()[0] == 0
