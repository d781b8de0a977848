"""One op on one picture, for whoever writes an op: its CPU form, its CUDA form, and whether its CUDA text compiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kernels.chain import Chain, Step, make_params
from kernels.codegen import generate
from kernels.compiler import compile_cubin
from kernels.device import Device, HostDevice
from kernels.formats import BGR16, GRAY8, GRAY16, NV12, PixelFormat, working_format
from kernels.image import ImageSpec, ImageView, Values
from kernels.memory import HostMemory
from kernels.op import OpParams
from kernels.plan import Plan, chain_params, make_plan, result_nbytes, slot_source_spec
from kernels.registry import AnyOp, find_op

POISON = 0xA5


def run_once(
    op: AnyOp, picture: Values, values: Mapping[str, Any] | None = None, device: Device | None = None
) -> Values:
    """What an op makes of (H, W) or (H, W, 3), uint8 or uint16, by a frame's whole path: a slot, a plan, an executor.

    ``values`` are its parameters; without a ``device`` it runs on the CPU. The result's memory holds stale bytes
    before, so that a pixel which the op leaves out is seen. A ``TemporalOp`` sees its first frame.

    Raises:
        InputError: a value is not acceptable, or the picture's size, or its 16 bits.
        CompileError: on a GPU, the CUDA text does not compile.
    """
    device = device or HostDevice()
    chain = Chain((Step(op, make_params(op, values or {}, op.name)),))
    format = working_format(1 if picture.ndim == 2 else 3, 8 * picture.itemsize)
    plan = make_plan(chain, slot_source_spec(ImageSpec.make(format, picture.shape[1], picture.shape[0])))
    device.activate()
    slot, made = device.allocate_slot(plan.source.nbytes), device.allocate_slot(result_nbytes(plan))
    try:
        source = ImageView(plan.source, slot.array, slot.dev_ptr)
        return _submitted(device, plan, chain_params(chain), picture, source, made)
    finally:
        made.close()
        slot.close()


def _submitted(
    device: Device, plan: Plan, params: tuple[OpParams, ...], picture: Values, source: ImageView, made: HostMemory
) -> Values:
    result = ImageView(plan.result, made.array, made.dev_ptr)
    source.plane(0)[...] = picture
    result.buffer[...] = POISON
    executor = device.make_executor(plan)
    try:
        executor.submit(source, result, params).wait()
    finally:
        executor.close()
    return np.array(result.plane(0))


def compile_op(op: AnyOp, architectures: Iterable[str] = ("90",)) -> None:
    """Compile the CUDA form as chains have it: at the head and behind others, on colour and on grey; needs no GPU.

    Raises:
        CompileError: it does not; names file and line.
    """
    wide: tuple[PixelFormat, ...] = (GRAY16, BGR16) if op.takes_16_bit else ()
    for names, formats in (
        ((op.name,), (NV12, GRAY8, *wide)), (("sobel", op.name, "grayscale", op.name), (NV12, *wide[1:])),
    ):  # fmt: skip
        steps = [Step(op, op.Params()) if name == op.name else _step(name) for name in names]
        for format in formats:
            source = generate(make_plan(Chain(tuple(steps)), ImageSpec.make(format, 64, 48)))
            for architecture in architectures:
                compile_cubin(source, architecture)


def _step(name: str) -> Step:
    other = find_op(name)
    return Step(other, other.Params())
