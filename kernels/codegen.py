"""Plan → CUDA text: the shared headers by name, then one ``extern "C"`` kernel per pass, called like its op."""

from __future__ import annotations

from functools import cache
from importlib import resources

from kernels.image import ImageSpec
from kernels.op import PixelOp, TableOp, WindowOp
from kernels.plan import Plan
from kernels.registry import AnyOp


@cache
def headers() -> dict[str, str]:
    """The shared device code by the name it is included under (``pinhole/common.cuh``)."""
    folder = resources.files("kernels").joinpath("cuda")
    return {
        f"pinhole/{entry.name}": entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda e: e.name)
        if entry.name.endswith(".cuh")
    }


def ingest_name(plan: Plan) -> str:
    """The kernel of the ingest pass."""
    return f"ingest_{plan.source.format.name.lower()}"


def op_kernel_name(op: AnyOp, picture: ImageSpec) -> str:
    """The kernel of an op's pass over a picture: one for each number of channels."""
    return f"op_{op.name}_c{picture.format.channels}"


EGRESS_NAME = "egress_packed"


def generate(plan: Plan) -> str:
    """The CUDA C++ text of every pass of a plan; the same for all sizes and parameter values."""
    parts = [f'#include "{name}"' for name in headers()]
    parts.append(
        f'extern "C" __global__ void __launch_bounds__(INGEST_THREADS) {ingest_name(plan)}'
        f"(const __grid_constant__ IngestArgs args) {{ ingest<{plan.source.format.name.capitalize()}>(args); }}"
    )
    # #line makes the compiler name the op's own file and line in its messages.
    sources = {op.name: op.cuda_source for op in plan.ops if isinstance(op, (WindowOp, PixelOp))}
    parts.extend(f'#line 1 "ops/{name}.py"\n{text.strip(chr(10))}' for name, text in sources.items())
    parts.append('#line 1 "generated"')
    kernels = {
        op_kernel_name(op, before): _op_kernel(op, before, after)
        for op, before, after in zip(plan.ops, plan.pictures, plan.pictures[1:], strict=False)
    }
    parts.extend(kernels.values())
    parts.append(
        f'extern "C" __global__ void __launch_bounds__(EGRESS_THREADS) {EGRESS_NAME}'
        "(const __grid_constant__ EgressArgs args) { egress(args); }"
    )
    return "\n".join(parts) + "\n"


def _op_kernel(op: AnyOp, before: ImageSpec, after: ImageSpec) -> str:
    name, channels = op_kernel_name(op, before), before.format.channels
    # Five blocks a multiprocessor: left to itself, the compiler spills to have six.
    head = f'extern "C" __global__ void __launch_bounds__(256, 5) {name}(const __grid_constant__'
    if isinstance(op, TableOp):
        return f"{head} TableArgs args) {{ table_op(args); }}"
    if isinstance(op, WindowOp):
        return (
            f"{head} StencilArgs<{op.name}_params> args) {{\n"
            f"  const auto function = [](auto at, const {op.name}_params& p) {{ return {op.name}(at, p); }};\n"
            f"  window_op<{channels}, {op.fixed_radius}>(args, function);\n"
            "}"
        )
    if isinstance(op, PixelOp):
        parameters = f"Picture<{channels}> in, int x, int y, Size size, const {op.name}_params& p, uint8* out"
        return (
            f"{head} PixelArgs<{op.name}_params> args) {{\n"
            f"  const auto function = []({parameters}) {{ {op.name}<{channels}>(in, x, y, size, p, out); }};\n"
            f"  pixel_op<{channels}, {after.format.channels}>(args, function);\n"
            "}"
        )
    return f"{head} StencilArgs<Taps> args) {{ separable_op<{channels}>(args); }}"
