from __future__ import annotations

import pytest

from kernels.device import Device, HostDevice
from tests.kernels.field_cases import FieldCases


@pytest.fixture
def device() -> Device:
    return HostDevice()


class TestFieldCases(FieldCases):
    pass
