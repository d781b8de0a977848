"""Plan → CUDA text: the shared headers by name, then one ``extern "C"`` kernel per pass, called like its op."""

from __future__ import annotations

from functools import cache
from importlib import resources

from kernels.op import TableOp, WindowOp
from kernels.plan import Plan
from kernels.registry import AnyOp

_INGEST_TYPES = {"BGR8": "Bgr8", "GRAY8": "Gray8", "NV12": "Nv12", "I420": "I420", "YUYV": "Yuyv"}


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


def op_kernel_name(op: AnyOp) -> str:
    """The kernel of an op's pass."""
    return f"op_{op.name}"


EGRESS_NAME = "egress_packed"


def generate(plan: Plan) -> str:
    """The CUDA C++ text of every pass of a plan; the same for all sizes and parameter values."""
    channels = plan.working.format.channels
    ops = {op.name: op for op in plan.ops}
    parts = [f'#include "{name}"' for name in headers()]
    parts.append(
        f'extern "C" __global__ void __launch_bounds__(INGEST_THREADS) {ingest_name(plan)}'
        f"(const __grid_constant__ IngestArgs args) {{ ingest<{_INGEST_TYPES[plan.source.format.name]}>(args); }}"
    )
    parts.extend(_op_text(op, channels) for op in ops.values())
    parts.append(
        f'extern "C" __global__ void __launch_bounds__(EGRESS_THREADS) {EGRESS_NAME}'
        "(const __grid_constant__ EgressArgs args) { egress(args); }"
    )
    return "\n".join(parts) + "\n"


def _op_text(op: AnyOp, channels: int) -> str:
    # Five blocks a multiprocessor: left to itself, the compiler spills to have six.
    head = f'extern "C" __global__ void __launch_bounds__(256, 5) {op_kernel_name(op)}'
    if isinstance(op, TableOp):
        return f"{head}(const __grid_constant__ TableArgs args) {{ table_op(args); }}"
    if not isinstance(op, WindowOp):
        return f"{head}(const __grid_constant__ StencilArgs<Taps> args) {{ separable_op<{channels}>(args); }}"
    # #line makes the compiler name the op's own file and line in its messages.
    return "\n".join(
        [
            f'#line 1 "ops/{op.name}.py"',
            op.cuda_source.strip("\n"),
            '#line 1 "generated"',
            f"{head}(const __grid_constant__ StencilArgs<{op.name}_params> args) {{",
            f"  const auto function = [](auto at, const {op.name}_params& p) {{ return {op.name}(at, p); }};",
            f"  window_op<{channels}, {op.fixed_radius}>(args, function);",
            "}",
        ]
    )
