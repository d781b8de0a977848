"""A device for each memory strategy that cameras ask for, all on one piece of hardware or the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kernels.device import CudaDevice, Device, open_device
from kernels.errors import DeviceFailedError, DeviceUnavailableError, InputError

OpenDevice = Callable[[str], tuple[Device, str]]


class Devices:
    """``first`` is every camera's that asks for nothing; others are opened when they are first asked for.

    They share the first one's ledger and limits. Any thread.
    """

    def __init__(self, first: Device, open_one: OpenDevice = open_device) -> None:
        self.first = first
        self._open = open_one
        self._lock = threading.Lock()
        self._made: dict[str, Device] = {first.memory: first}

    def get(self, memory: str | None) -> Device:
        """The device of a strategy; opening one takes as long as the driver needs.

        Raises:
            InputError: there is no such strategy, or it is not to be had here; says why and what is.
        """
        if memory is None:
            return self.first
        with self._lock:
            if (device := self._made.get(memory)) is not None:
                return device
            try:
                device, _ = self._open(memory)
            except (DeviceUnavailableError, DeviceFailedError) as error:
                raise InputError("memory", str(error), ", ".join(self._made)) from None
            device.ledger = self.first.ledger
            device.max_host_bytes = self.first.max_host_bytes
            device.on_lost = self.first.lose
            device.holds_results = self.first.holds_results
            if isinstance(device, CudaDevice) and isinstance(self.first, CudaDevice):
                device.dump_folder = self.first.dump_folder
            self._made[memory] = device
            return device

    def gpu(self) -> Device | None:
        """One that is on a GPU, or None. They are all on the same one."""
        with self._lock:
            return next((device for device in self._made.values() if device.backend == "cuda"), None)

    def close(self) -> None:
        """Release them all; executors and slots must be closed before."""
        with self._lock:
            for device in self._made.values():
                device.close()
