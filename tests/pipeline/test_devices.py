"""A device for each memory strategy that cameras ask for."""

from __future__ import annotations

import pytest

from kernels.device import Device, HostDevice, NullDevice
from kernels.errors import DeviceUnavailableError, InputError
from pipeline.devices import Devices


class Other(NullDevice):
    memory = "staged"

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_one_device_for_each_strategy_with_one_ledger() -> None:
    first, other, asked = HostDevice(), Other(), []
    first.max_host_bytes = 123

    def make(memory: str) -> tuple[Device, str]:
        asked.append(memory)
        return other, "because"

    devices = Devices(first, make)
    assert devices.get(None) is first
    assert devices.get("host") is first
    assert asked == []
    assert devices.get("staged") is other
    assert devices.get("staged") is other
    assert asked == ["staged"]
    assert other.ledger is first.ledger
    assert other.max_host_bytes == 123
    devices.close()
    assert other.closed == 1


def test_a_strategy_that_is_not_to_be_had_is_an_input_error_that_says_why() -> None:
    def make(memory: str) -> tuple[Device, str]:
        raise DeviceUnavailableError(f"memory {memory}: there is no GPU")

    with pytest.raises(InputError, match="there is no GPU") as caught:
        Devices(HostDevice(), make).get("zero_copy")
    assert caught.value.field == "memory"
    assert caught.value.allowed == "host"
