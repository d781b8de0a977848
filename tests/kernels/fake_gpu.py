"""A GPU for the benchmark that has none: computes on the CPU, and its times are those that a test gives it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kernels.bench import Change, Exchange, Link
from kernels.bench_case import Case, NoEquivalentError, Ready
from kernels.device import Completion, HostDevice
from kernels.image import Pixels
from kernels.memory import PageMemory
from kernels.plan import Plan
from kernels.run_cpu import CpuExecutor


class FakeGpu:
    """See :class:`kernels.bench.Gpu`. ``log`` is what it was asked for, in order."""

    def __init__(self, gpu_us: float = 7.0) -> None:
        self.device = HostDevice()
        self.log: list[str] = []
        self.plans: list[Plan] = []
        self.caches: list[str | None] = []
        self.asked_exchanges: list[tuple[int, int]] = []
        self.on_submit: Callable[[], object] = lambda: None
        self.gpu_us = gpu_us
        self.unsettled = 0  # frames whose time on the GPU nobody asked for: their events are not used again

    def executor(self, plan: Plan, change: Change | None = None) -> FakeExecutor:
        made = change(plan) if change else plan
        self.log.append("executor")
        self.plans.append(made)
        self.caches.append(os.environ.get("PINHOLE_CACHE_DIR"))
        return FakeExecutor(self, plan)

    def forget_kernels(self) -> None:
        self.log.append("forget")

    def memory(self, content: Pixels) -> FakeBytes:
        return FakeBytes(content.nbytes, self.device)

    def op_by_op(self, case: Case) -> Ready:
        raise NoEquivalentError("CuPy op by op", "anything")

    def exchange(self, bytes_in: int, bytes_out: int) -> Exchange:
        self.log.append("exchange")
        self.asked_exchanges.append((bytes_in, bytes_out))
        return Exchange(10.0, 12.0)

    def link(self) -> Link:
        self.log.append("link")
        return Link(50.0, 51.0, 1000.0)


class FakeBytes(PageMemory):
    """Owned like device memory, so that what is forgotten is a warning, and that an error."""

    def __init__(self, nbytes: int, device: HostDevice) -> None:
        super().__init__(nbytes, device.ledger)

    @property
    def ptr(self) -> int:
        return 4096


class FakeExecutor(CpuExecutor):
    """Computes, and says that the GPU took what the test wants."""

    def __init__(self, gpu: FakeGpu, plan: Plan) -> None:
        super().__init__(plan)
        self._gpu = gpu

    def submit(self, *args: Any, **kwargs: Any) -> Completion:
        self._gpu.on_submit()
        super().submit(*args, **kwargs).wait()
        self._gpu.unsettled += 1
        return FakeCompletion(self._gpu)


class FakeCompletion:
    """Done once it was waited for."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self._gpu_ns = int(gpu.gpu_us * 1000)
        self._waited = False

    def done(self) -> bool:
        return self._waited

    def wait(self) -> None:
        self._waited = True

    def gpu_ns(self) -> int | None:
        if not self._waited:
            return None
        self._gpu.unsettled -= 1
        return self._gpu_ns
