"""Memory that a camera's driver writes: ordinary pages that are registered, where the device can see those."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from kernels.device import CudaDevice, HostDevice
from kernels.memory import Ledger
from kernels.strategies import DeviceTraits
from tests.kernels.fake_cuda import CudaError, Runtime, fake_cuda

ALL = DeviceTraits(
    architecture=90, integrated=False, can_map=True, can_register=True, managed=True, concurrent_managed=True,
    pageable_access=False, one_pointer=True,
)  # fmt: skip


def device_of(monkeypatch: pytest.MonkeyPatch, runtime: Runtime, memory: str, traits: DeviceTraits) -> CudaDevice:
    """A CUDA device of that strategy, over ``runtime``."""
    fake_cuda(monkeypatch, runtime)
    device = cast(Any, CudaDevice.__new__(CudaDevice))
    device.memory, device.traits, device.ledger, device.numa_node, device.index = memory, traits, Ledger(), None, 0
    monkeypatch.setattr(CudaDevice, "activate", lambda self: None)
    monkeypatch.setattr("kernels.memory.keep_on_host", lambda *_: None)
    return cast(CudaDevice, device)


@pytest.mark.parametrize(
    ("memory", "can_register", "kinds"),
    [
        ("zero_copy", True, ["registered"]), ("auto", True, ["registered"]), ("staged", True, ["registered"]),
        ("registered", True, ["registered"]), ("zero_copy", False, ["hostAlloc"]),
        ("pageable", True, []),
    ],
)  # fmt: skip
def test_pages_are_registered_where_that_can_be(
    monkeypatch: pytest.MonkeyPatch, memory: str, can_register: bool, kinds: list[str]
) -> None:
    runtime = Runtime()
    device = device_of(monkeypatch, runtime, memory, dataclasses.replace(ALL, can_register=can_register))
    pages = device.allocate_pages(5000)
    assert runtime.held() == kinds
    assert pages.array.ctypes.data % 4096 == 0
    assert pages.nbytes >= 5000
    pages.array[:5000] = 7
    pages.close()
    assert runtime.held() == []
    assert [device.ledger.held(kind) for kind in ("pinned", "host", "managed")] == [0, 0, 0]


def test_what_cannot_be_registered_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    device = device_of(monkeypatch, runtime, "zero_copy", ALL)
    runtime.fail_at, runtime.status = 1, 801
    with pytest.raises(Exception, match="cudaHostRegister"):
        device.allocate_pages(5000)
    assert runtime.held() == []
    assert device.ledger.held("pinned") == 0
    assert CudaError(801).status == 801


def test_without_a_gpu_every_slot_is_pages() -> None:
    device = HostDevice()
    pages = device.allocate_pages(1)
    assert pages.array.ctypes.data % 4096 == 0
    pages.close()
