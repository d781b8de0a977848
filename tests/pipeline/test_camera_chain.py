"""Changing a chain while frames run: whole sets only, in order, by anyone at any time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from kernels.chain import Chain, make_chain, parse_chain
from kernels.device import HostDevice, NullDevice
from kernels.errors import InputError, OutOfMemoryError, UnknownNameError
from kernels.image import Stamp
from kernels.op import Scratch
from pipeline.camera import Camera, CameraConfig, CameraState
from pipeline.engine import Engine
from tests.pipeline.fakes import (
    FakeSource,
    Picture,
    camera_of,
    endless,
    held,
    image,
    pictures,
    source_format,
    until,
    until_processed,
)

BASE = 100


def grey() -> FakeSource:
    return FakeSource(Picture(BASE, 0.002) for _ in iter(int, 1))


@pytest.fixture
def camera() -> Iterator[Camera]:
    with camera_of(grey, device=HostDevice(), chain=parse_chain("gain_offset(gain=1, offset=0)")) as made:
        until_processed(made, 1)
        yield made


def read(camera: Camera, version: int) -> tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """The first frame that a chain of that version or a later one made: (version, pixels)."""
    last = -1
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        lease = camera.wait_newer(last, 1)
        if lease is None:
            continue
        with lease:
            last = lease.frame.sequence
            if lease.frame.chain_version >= version:
                return lease.frame.chain_version, lease.result.plane(0).copy()
    raise AssertionError(f"no frame of version {version}")


def test_a_change_shows_in_the_next_frames_and_in_their_version(camera: Camera) -> None:
    chain = camera.set_chain([{"op": "gain_offset", "params": {"offset": 20.0}}])
    assert chain.version == 2
    assert camera.chain == chain
    version, pixels = read(camera, 2)
    assert (version, set(pixels.flat)) == (2, {BASE + 20})
    camera.set_params(0, {"gain": 2.0})
    version, pixels = read(camera, 3)
    assert (version, set(pixels.flat)) == (3, {2 * BASE + 20}), "the offset keeps its value"


def test_a_chain_can_be_given_as_a_chain(camera: Camera) -> None:
    chain = camera.set_chain(parse_chain("gain_offset(offset=7.0) | gain_offset(offset=1.0)", version=99))
    assert chain.version == 2, "versions are the camera's own"
    assert set(read(camera, 2)[1].flat) == {BASE + 8}


def test_each_frame_shows_its_own_name_number_and_time() -> None:
    """What is written is compared with the operation done by hand for what the frame says of itself."""
    chain = parse_chain("overlay_text(text='{camera} {sequence} {time}.{ms}', scale=1)")
    op, params = chain.steps[0].op, chain.steps[0].params
    make = endless(format=source_format(image(400, 40)))
    last = -1
    with camera_of(make, device=HostDevice(), chain=chain) as camera:
        for _ in range(5):
            lease = camera.wait_newer(last, 10)
            assert lease is not None
            with lease:
                frame, result, picture = lease.frame, lease.result.plane(0).copy(), lease.source.plane(0).copy()
            last = frame.sequence
            for number, same in ((frame.sequence, True), (frame.sequence + 1, False)):
                scratch, expected = Scratch(), np.empty_like(picture)
                scratch.stamp = Stamp("cam", number, frame.capture.wall_ns)
                op.run_cpu(picture, expected, params, scratch)
                assert np.array_equal(result, expected) is same


def test_an_empty_chain_passes_the_picture_through(camera: Camera) -> None:
    camera.set_chain([])
    assert set(read(camera, 2)[1].flat) == {BASE}


@pytest.mark.parametrize(
    ("ops", "field"),
    [
        ([{"op": "gausian_blur"}], "ops[0].op"),
        ([{"op": "gamma"}, {"op": "gaussian_blur", "params": {"ksize": 4}}], "ops[1].params.ksize"),
        ([{"op": "gamma", "params": {"gamma": float("nan")}}], "ops[0].params.gamma"),
        ([{"op": "gamma", "parms": {}}], "ops[0].parms"),
        ("gamma", "ops"),
        ([{"op": "gamma"}] * 65, "ops"),
    ],
)
def test_a_wrong_chain_changes_nothing(camera: Camera, ops: object, field: str) -> None:
    before = camera.chain
    with pytest.raises(InputError) as caught:
        camera.set_chain(ops)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert camera.chain is before
    until_processed(camera, camera.statistics().processed + 2)
    assert read(camera, 1)[0] == 1


@pytest.mark.parametrize("index", [-1, 1, 10**9, True, "0", 0.0])
def test_an_operation_that_is_not_there_is_refused(camera: Camera, index: object) -> None:
    with pytest.raises(InputError, match="0 to 0") as caught:
        camera.set_params(index, {"gain": 2.0})  # type: ignore[arg-type]
    assert caught.value.field == "index"


def test_wrong_parameters_change_nothing(camera: Camera) -> None:
    before = camera.chain
    with pytest.raises(UnknownNameError, match="gain") as unknown:
        camera.set_params(0, {"gian": 2.0})
    assert unknown.value.field == "ops[0].params.gian"
    with pytest.raises(InputError) as caught:
        camera.set_params(0, {"gain": 1e9, "offset": 3.0})
    assert caught.value.field == "ops[0].params.gain"
    with pytest.raises(InputError):
        camera.set_params(0, [("gain", 1.0)])  # type: ignore[arg-type]
    assert camera.chain is before


def test_no_operation_can_be_changed_in_an_empty_chain() -> None:
    with camera_of(endless(), start=False) as camera, pytest.raises(InputError, match="empty"):
        camera.set_params(0, {})


def offsets(chain: Chain) -> int:
    """What a chain of two gain_offsets adds, in all."""
    return sum(int(step.params.model_dump()["offset"]) for step in chain.steps)


@pytest.mark.slow
def test_b120_fifty_changes_a_second_from_four_threads_are_whole_and_in_order(camera: Camera) -> None:
    """Two ops whose offsets always belong together (a, a): a half-applied set would add an odd amount or a wrong one.

    Op lists change too, so executors come and go; three readers look at every frame meanwhile.
    """
    made: dict[int, int] = {1: 0}
    order: list[int] = []
    lock = threading.Lock()
    stop = threading.Event()
    wrong: list[str] = []

    def change(number: int) -> None:
        for i in range(50):
            if stop.wait(0.02):
                return
            a = float(1 + (number * 50 + i) % 40)
            ops = [{"op": "gain_offset", "params": {"offset": a}}] * (2 if i % 3 else 1)
            chain = camera.set_chain(ops)
            with lock:
                made[chain.version] = offsets(chain)
                order.append(chain.version)

    def look() -> None:
        last, version = -1, 0
        while not stop.is_set():
            lease = camera.wait_newer(last, 0.2)
            if lease is None:
                continue
            with lease:
                last = lease.frame.sequence
                values = set(lease.result.plane(0).flat)
                if lease.frame.chain_version < version:
                    wrong.append(f"version {lease.frame.chain_version} after {version}")
                version = lease.frame.chain_version
            with lock:
                known = made.get(version)
            if len(values) != 1 or (known is not None and values != {BASE + known}):
                wrong.append(f"version {version} shows {values}, not {known}")

    changers = [threading.Thread(target=change, args=(n,)) for n in range(4)]
    readers = [threading.Thread(target=look) for _ in range(3)]
    for thread in changers + readers:
        thread.start()
    for thread in changers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert wrong == []
    assert len(order) == 200
    assert sorted(order) == list(range(2, 202)), "each change has its own version, none is skipped"
    assert camera.chain.version == 201
    assert camera.state is CameraState.RUNNING
    assert set(read(camera, 201)[1].flat) == {BASE + made[201]}


def test_b120_a_removal_during_changes_leaves_nothing_behind() -> None:
    device = HostDevice()
    engine = Engine(device, source_factory=lambda uri: FakeSource(pictures(every_s=0.002)))
    for round_ in range(5):
        camera = engine.add(CameraConfig("cam", "fake://", make_chain([{"op": "gamma"}])))
        until_processed(camera, 1)
        going = threading.Event()
        stop = threading.Event()

        def change(camera: Camera = camera, going: threading.Event = going, stop: threading.Event = stop) -> None:
            i = 0
            while not stop.is_set():
                camera.set_chain([{"op": "sobel"}] * (i % 3))
                i += 1
                going.set()

        changers = [threading.Thread(target=change) for _ in range(2)]
        for thread in changers:
            thread.start()
        assert going.wait(10)
        assert engine.remove("cam", 10), f"round {round_}"
        with pytest.raises(UnknownNameError):
            engine.get("cam")
        time.sleep(0.02)  # changes go on on the removed camera
        stop.set()
        for thread in changers:
            thread.join()
        assert camera.state is CameraState.STOPPED, "a late change revives nothing"
        assert not [t.name for t in threading.enumerate() if t.name.endswith("-cam")]
        assert held(device) == 0
    assert engine.stop(5) == []


def test_versions_go_on_over_a_restart() -> None:
    with camera_of(endless(), device=NullDevice()) as camera:
        camera.set_chain([{"op": "gamma"}])
        until_processed(camera, 1)
        assert camera.stop(5)
        camera.start()
        until(lambda: camera.state is CameraState.RUNNING)
        assert camera.set_chain([]).version == 3


def test_a_new_size_reshapes_results_and_restarts_nothing() -> None:
    """Width and height change under readers: one source, one ring, each result whole and of its own chain's size."""
    source = grey()
    with camera_of(lambda: source, device=HostDevice(), chain=parse_chain("resize(width=64) | gamma")) as camera:
        until_processed(camera, 1)
        ring = camera._core.work.ring if camera._core.work is not None else None
        kept = camera.latest()
        assert kept is not None
        before = kept.result.packed()
        sizes = [(64, 40), (200, 124), (1, 1), (640, 398), (37, 23)]  # of a picture of 37x23
        for version, (width, height) in enumerate(sizes, 2):
            camera.set_params(0, {"width": width, "height": height if version % 2 else 0})
            number, pixels = read(camera, version)
            assert number == version
            assert pixels.shape == (height, width)
            assert set(pixels.flat) == {BASE}
            now = camera.statistics().result
            assert now is not None
            assert (now.width, now.height) == pixels.shape[::-1]
        assert camera._core.work is not None
        assert camera._core.work.ring is ring, "the capture was restarted"
        assert source.opened == 1
        assert (kept.result.packed() == before).all(), "a reader's frame changed under it"
        kept.release()


def test_a_size_for_which_there_is_no_memory_is_refused_and_what_runs_goes_on() -> None:
    device = NullDevice()
    with camera_of(endless(), device=device, chain=parse_chain("resize(width=64)")) as camera:
        until_processed(camera, 1)
        before = camera.chain
        device.fail_allocation = OutOfMemoryError("pinned memory", 800_000_000, 1_000_000, "use a smaller size")
        with pytest.raises(OutOfMemoryError, match=r"800\.0 MB .* 1\.0 MB is free"):
            camera.set_params(0, {"width": 16384})
        assert camera.chain is before
        camera.set_params(0, {"width": 32})  # a smaller result needs no memory
        camera.set_params(0, {"interpolation": "area"})
        until_processed(camera, camera.statistics().processed + 5)
        assert camera.state is CameraState.RUNNING
        assert device.ledger.held("host") > 0
    assert device.ledger.held("host") == 0


def test_a_value_that_changes_no_size_keeps_the_executor(camera: Camera) -> None:
    camera.set_chain(parse_chain("resize(width=64)"))
    assert camera._core.work is not None
    executor = camera._core.work.executor
    camera.set_params(0, {"interpolation": "area"})
    assert camera._core.work.executor is executor
    camera.set_params(0, {"width": 65})
    assert camera._core.work.executor is not executor
    assert read(camera, 4)[1].shape == (40, 65)
