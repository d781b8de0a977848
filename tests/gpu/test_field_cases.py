"""The field cases that every executor passes, on CUDA."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels.device import CudaDevice
from tests.kernels.field_cases import FieldCases

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    device = CudaDevice()
    yield device
    assert device.ledger.held("pinned") == 0
    assert device.ledger.held("device") == 0


class TestOnCuda(FieldCases):
    pass
