"""Results that stay on the device until somebody on the host asks for them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from kernels.chain import Chain, parse_chain
from kernels.device import DoneNow, HostDevice, NullDevice
from kernels.errors import DeviceFailedError
from kernels.image import DeviceView, ImageView, Pixels
from kernels.plan import make_plan
from pipeline.demand import Demand, Place
from pipeline.lease import ReadLease
from pipeline.ring import Ring
from tests.pipeline.fakes import (
    camera_of,
    endless,
    frame,
    held,
    image,
    settled,
    until,
    until_processed,
)  # fmt: skip

FAILED = DeviceFailedError("cudaMemcpyAsync", 1, "cudaErrorInvalidValue", False, "see the documentation")


@pytest.fixture
def device() -> Iterator[NullDevice]:
    made = NullDevice()
    made.holds_results = True
    yield made
    assert held(made) == 0
    assert made.ledger.held("device") == 0


@pytest.fixture
def fetched() -> list[int]:
    return []


@pytest.fixture
def ring(device: NullDevice, fetched: list[int]) -> Iterator[Ring]:
    made = Ring(device, image(), slots=4, on_fetch=fetched.append)
    yield made
    assert made.close(5)


def pixels_of(view: DeviceView) -> Pixels:
    """What lies on the null device."""
    room = (ctypes.c_uint8 * view.spec.nbytes).from_address(view.dev_ptr)
    return np.ctypeslib.as_array(room)


def make(ring: Ring, sequence: int, *, on_host: bool = False) -> None:
    """A frame whose result shows its number where it was written, and 255 minus that where it was not."""
    writer = ring.acquire_write()
    assert writer is not None
    writer.publish(frame(sequence))
    lease = ring.acquire_ready(0)
    assert lease is not None
    plan = make_plan(Chain(), ring.source)
    host = lease.result(plan)
    if on_host:
        host.plane(0)[...] = sequence
    else:
        host.plane(0)[...] = 255 - sequence
        there = lease.device_result(plan)
        assert there is not None
        pixels_of(there)[:] = sequence
    lease.finish(DoneNow())


def newest(ring: Ring) -> ReadLease:
    lease = ring.latest()
    assert lease is not None
    return lease


def test_a_result_on_the_device_is_copied_for_the_first_reader_alone(
    ring: Ring, device: NullDevice, fetched: list[int]
) -> None:
    make(ring, 7)
    with newest(ring) as one, newest(ring) as other:
        there = one.device_result
        assert there is not None
        assert (pixels_of(there) == 7).all()
        assert device.fetched == 0, "looking at it there copies nothing"
        assert (one.result.plane(0) == 7).all()
        assert (other.result.plane(0) == 7).all()
        assert one.device_result == there, "it is still there"
    assert device.fetched == 1
    assert fetched == [there.spec.nbytes]
    make(ring, 8)
    with newest(ring) as lease:
        assert (lease.result.plane(0) == 8).all(), "the next frame is not taken for fetched"
    assert device.fetched == 2


def test_a_result_that_was_written_to_the_host_is_not_copied(ring: Ring, device: NullDevice) -> None:
    make(ring, 1)
    make(ring, 2, on_host=True)
    with newest(ring) as lease:
        assert (lease.result.plane(0) == 2).all()
        assert lease.device_result is None, "the null device does not see host memory"
    assert device.fetched == 0


def test_readers_that_come_at_once_wait_for_one_copy(
    ring: Ring, device: NullDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(ring, 9)
    copying, go = threading.Event(), threading.Event()
    copy = device.fetch

    def slowly(result: DeviceView, into: ImageView) -> None:
        copying.set()
        assert go.wait(10)
        copy(result, into)

    monkeypatch.setattr(device, "fetch", slowly)
    seen: list[bool] = []

    def read() -> None:
        with newest(ring) as lease:
            seen.append(bool((lease.result.plane(0) == 9).all()))

    readers = [threading.Thread(target=read) for _ in range(5)]
    for reader in readers:
        reader.start()
    assert copying.wait(10)
    assert seen == []
    go.set()
    for reader in readers:
        reader.join(10)
    assert seen == [True] * 5
    assert device.fetched == 1


def test_a_copy_that_fails_is_the_readers_error_and_is_tried_again(
    ring: Ring, device: NullDevice, fetched: list[int]
) -> None:
    make(ring, 3)
    device.fail_fetch = FAILED
    with newest(ring) as lease:
        with pytest.raises(DeviceFailedError):
            _ = lease.result
        assert (lease.result.plane(0) == 3).all()
    assert len(fetched) == 1
    settled(ring)


def test_larger_results_get_room_on_the_device_too(ring: Ring, device: NullDevice) -> None:
    """The ring is made for a plan; another one with a larger result replaces both buffers of each slot."""
    before = device.ledger.held("device")
    plan = make_plan(parse_chain("resize(width=370)"), ring.source)
    ring.reserve(plan)
    assert device.ledger.held("device") > before
    for sequence in range(8):
        writer = ring.acquire_write()
        assert writer is not None
        writer.publish(frame(sequence))
        lease = ring.acquire_ready(0)
        assert lease is not None
        there = lease.device_result(plan)
        assert there is not None
        pixels_of(there)[:] = sequence
        lease.finish(DoneNow())
        with newest(ring) as reader:
            assert (reader.result.plane(0) == sequence).all()


def test_a_device_that_holds_nothing_has_no_place_for_it() -> None:
    device = HostDevice()
    ring = Ring(device, image(), slots=4)
    writer = ring.acquire_write()
    assert writer is not None
    writer.publish(frame(1))
    lease = ring.acquire_ready(0)
    assert lease is not None
    assert lease.device_result(make_plan(Chain(), ring.source)) is None
    lease.finish(DoneNow())
    with newest(ring) as reader:
        assert reader.device_result is None
        assert reader.result.plane(0).shape == (23, 37)
    assert ring.close(5)


def test_results_go_to_the_host_only_while_all_readers_are_there() -> None:
    demand = Demand()
    places = [demand.place]
    host = demand.claim(Place.HOST)
    places.append(demand.place)
    device = demand.claim(Place.DEVICE)
    places.append(demand.place)
    device()
    device()  # a claim is given up once
    places.append(demand.place)
    another = demand.claim(Place.HOST)
    host()
    places.append(demand.place)
    another()
    assert [*places, demand.place] == [
        Place.DEVICE, Place.HOST, Place.DEVICE, Place.HOST, Place.HOST, Place.DEVICE
    ]  # fmt: skip


def test_a_camera_writes_where_its_readers_are(device: NullDevice) -> None:
    written: list[str] = []
    device.on_done = lambda _source, result: written.append("device" if isinstance(result, DeviceView) else "host")
    with camera_of(endless(0.002), device=device) as camera:
        until_processed(camera, 3)
        assert set(written) == {"device"}
        release = camera.claim(Place.HOST)
        until(lambda: written[-1] == "host", "a result on the host")
        release()
        until(lambda: written[-1] == "device", "a result on the device")
        lease = camera.latest()
        assert lease is not None
        with lease:
            nbytes = lease.result.spec.nbytes
        assert camera.statistics().copied_bytes.get("from_device", 0) == device.fetched * nbytes


@pytest.mark.parametrize("memory", ["staged", "pageable"])
def test_strategies_that_copy_leave_results_to_those_who_read_them(device: NullDevice, memory: str) -> None:
    device.memory = memory
    written: list[bool] = []
    device.on_done = lambda _source, result: written.append(isinstance(result, DeviceView))
    with camera_of(endless(0.002), device=device) as camera:
        release = camera.claim(Place.HOST)
        until_processed(camera, 5)
        release()
    assert all(written)
