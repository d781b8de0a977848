"""Every op, in passes it shares with others, once: what compute-sanitizer watches (`bash tests/gpu/run.sh sanitize`).

Small pictures with a size that is no whole tile, as the sanitizer is some hundred times slower; results are compared
with the oracles as well.
"""

from __future__ import annotations

import sys

from kernels.chain import Chain, Step
from kernels.device import CudaDevice
from kernels.formats import BGR8, GRAY8, I420, NV12
from kernels.plan import reads_in_place, slot_source_spec, unfused
from kernels.registry import all_ops
from kernels.run_cuda import CudaExecutor
from tests.gpu.test_run_cuda import STD4, PlanDevice
from tests.kernels.cases import SourceCase, check_exact
from tests.kernels.targets import TARGETS, check_target
from tests.kernels.test_emulated import groups


def main() -> int:
    device = PlanDevice()
    device.activate()
    assert isinstance(device, CudaDevice)
    runs = 0
    for number, names in enumerate(groups(5)):
        chain = Chain(tuple(Step(all_ops()[name], all_ops()[name].Params()) for name in names))
        check_exact(device, SourceCase((BGR8, NV12, GRAY8)[number % 3], 141, 37, 13, 3).spec(), chain, frames=2)
        runs += 1
    for change in (unfused, reads_in_place):
        device.change = change
        check_exact(device, slot_source_spec(SourceCase(BGR8, 400, 35).spec()), STD4, frames=2)
        runs += 1
    del device.change
    for target in TARGETS:
        check_target(device, SourceCase(I420, 129, 17, 4, 1).spec(), "sobel", target)
        runs += 1
    print(f"{runs} chains ran by {CudaExecutor.__name__} and are exact")
    return 0


if __name__ == "__main__":
    sys.exit(main())
