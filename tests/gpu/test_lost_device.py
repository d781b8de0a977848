"""A real sticky error: an operation's kernel writes to address 0 while the service runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.server import serve

pytestmark = pytest.mark.gpu

CRASH = '''"""An operation that takes the GPU down when it is told to."""

import struct

from pydantic import Field

from kernels.op import OpKind, OpParams, PixelOp


class CrashParams(OpParams):
    now: bool = Field(default=False, description="Write to address 0.")


class Crash(PixelOp[CrashParams]):
    """Writes to address 0 when ``now`` is true."""

    name = "crash"
    kind = OpKind.POINT
    Params = CrashParams
    cuda_source = """
struct crash_params { int now; };
template <int CHANNELS>
__device__ void crash(const Picture<CHANNELS>& in, int x, int y, Size, const crash_params& p, uint8* out) {
  if (p.now) *(volatile int*)8 = 1;
  for (int c = 0; c < CHANNELS; ++c) out[c] = in.at(x, y)[c];
}
"""

    def constants(self, params: CrashParams) -> bytes:
        return struct.pack("i", params.now)

    def run_cpu(self, src, dst, params, scratch):
        dst[...] = src
'''


def test_a_lost_gpu_ends_the_service_with_a_code_of_its_own(tmp_path: Path) -> None:
    """Nobody sees a frozen picture: the process ends, says why, and a supervisor starts it anew."""
    (tmp_path / "crash.py").write_text(CRASH)
    cameras = ("--camera", "a=testcard://?size=352x288&fps=30", "--camera", "b=testcard://?size=352x288&fps=30")
    with serve("--ops", str(tmp_path), *cameras, "--chain", "a=crash") as server:
        assert server.get("/health/live").status == 200
        answer = server.request("PATCH", "/api/v1/cameras/a/chain/0", {"params": {"now": True}})
        assert answer.status == 200, answer.body
        assert server.process.wait(20) == 3
        assert "the GPU was lost" in server.log
        assert "cudaError" in server.log or "CUDA_ERROR" in server.log
        assert "camera a: running → failed" in server.log
    with serve(*cameras) as server:  # and a fresh process has the GPU
        assert server.get("/health/ready").status == 200
        assert server.end()[0] == 0
