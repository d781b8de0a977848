"""What a camera's stage runs at one time; a change is a new one, swapped whole at a frame boundary."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernels.chain import Chain
from kernels.device import Device, Executor
from kernels.op import OpParams
from kernels.plan import chain_params, make_plan, slot_source_spec
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
        same = (self.source.image, self.source.live) == (source.image, source.live)
        return same and not self.ring.retired


def compile_chain(device: Device, config: CameraConfig, chain: Chain, source: SourceFormat) -> Executor:
    """An executor for a chain on a source's slots: slow. Any thread.

    Raises:
        OutOfMemoryError, CompileError, DeviceFailedError
    """
    device.activate()
    return device.make_executor(make_plan(chain, slot_source_spec(source.image)), config.wait)
