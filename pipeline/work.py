"""What a camera's stage runs at one time; a change is a new one, swapped whole at a frame boundary."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernels.chain import Chain
from kernels.device import Device, Executor
from kernels.errors import OutOfMemoryError
from kernels.op import OpParams
from kernels.plan import Plan, chain_params, make_plan, result_nbytes, slot_source_spec
from pipeline.config import CameraConfig
from pipeline.ring import Ring
from pipeline.sources.base import SourceFormat


@dataclass(frozen=True, slots=True)
class Work:
    """A ring, the executor whose plan fits its slots, and one chain with its whole parameter set."""

    source: SourceFormat
    ring: Ring
    executor: Executor
    chain: Chain
    params: tuple[OpParams, ...]

    def with_chain(self, chain: Chain, executor: Executor) -> Work:
        """The same ring under another chain, which ``executor`` can run."""
        return replace(self, chain=chain, params=chain_params(chain), executor=executor)

    def takes(self, source: SourceFormat) -> bool:
        """True if frames of that format can go into this ring as it is."""
        mine = (self.source.image, self.source.live, self.source.layout)
        return mine == (source.image, source.live, source.layout) and not self.ring.retired


def compile_chain(device: Device, config: CameraConfig, chain: Chain, source: SourceFormat, held: int = 0) -> Executor:
    """An executor for a chain on a source's slots: slow. Any thread. ``held``: bytes that its ring has already.

    Raises:
        OutOfMemoryError: also what the device's ``max_host_bytes`` refuses; CompileError, DeviceFailedError
    """
    plan = make_plan(chain, slot_source_spec(source.image) if source.layout is None else source.layout.spec)
    check_room(device, plan, config.slots + (0 if source.layout is None else source.layout.queued), held)
    device.activate()
    return device.make_executor(plan, config.wait)


def check_room(device: Device, plan: Plan, slots: int, held: int = 0) -> None:
    """Raise OutOfMemoryError if a ring for ``plan`` would take all slots beyond the device's ``max_host_bytes``.

    Counted with it are the two pictures between operations, which the CPU has in host memory as well.
    """
    if (limit := device.max_host_bytes) is None:
        return
    between = 2 * max(picture.nbytes for picture in plan.pictures)
    asked = slots * (plan.source.nbytes + result_nbytes(plan)) + between
    free = max(0, limit - (device.ledger.held("host") + device.ledger.held("pinned") - held))
    if asked > free:
        sizes = f"{slots} slots of {plan.source.describe()} and a result of {plan.result.describe()}"
        remedy = f"make pictures or the ring smaller, or raise limits.max_memory_bytes ({limit / 1e6:.1f} MB)"
        raise OutOfMemoryError(sizes, asked, free, remedy)
