"""The benchmark of chains on a GPU: every way gives figures and everything back."""

from __future__ import annotations

import pytest

from kernels.bench import BY_CUPY, BY_HAND, FUSED, ON_CPU, UNFUSED, Options, measure
from kernels.bench_case import STD4, make_case
from kernels.bench_cuda import CudaGpu
from kernels.device import CudaDevice
from kernels.formats import BGR8, I420, NV12

pytestmark = pytest.mark.gpu


def test_every_way_is_measured() -> None:
    device = CudaDevice()
    cases = [make_case(STD4, BGR8, 640, 480), make_case(STD4, NV12, 640, 480, I420, on_device=True)]
    figures = measure(cases, CudaGpu(device), Options(frames=30, runs=2, kernels=True))
    first, second = figures.cases
    for way in (FUSED, UNFUSED, BY_CUPY, ON_CPU, BY_HAND):
        assert all(0 < p50 <= p99 for p50, p99 in zip(first.ways[way].p50_us, first.ways[way].p99_us, strict=True))
        assert first.ways[way].p50_us != []
    assert second.ways[BY_CUPY].left_out.startswith("NV12")
    for one in figures.cases:
        assert len(one.floor_us) == 2
        # What the link needs for the bytes is less than a frame takes, and queued copies less than one by itself.
        assert 0 < min(one.floor_us) < min(one.ways[FUSED].p99_us)
        assert min(one.floor_us) < max(one.alone_us)
        assert min(one.kernels_us) > 0
        assert max(one.warm_ms) < min(one.cold_ms)
    assert all(link.device_gb_s > link.in_gb_s > 0 and link.out_gb_s > 0 for link in figures.links)
    assert device.ledger.held("pinned") == device.ledger.held("device") == 0
