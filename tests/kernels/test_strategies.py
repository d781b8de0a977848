"""Which memory strategies a device offers, and why not the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.strategies import STRATEGIES, DeviceTraits, refusal, refusals

H200 = DeviceTraits.of(
    {
        "Integrated": 0,
        "CanMapHostMemory": 1,
        "HostRegisterSupported": 1,
        "ManagedMemory": 1,
        "ConcurrentManagedAccess": 1,
        "PageableMemoryAccess": 0,
        "CanUseHostPointerForRegisteredMem": 1,
    },
    90,
    True,
)


def test_a_server_gpu_offers_all() -> None:
    assert set(refusals(H200).values()) == {None}
    assert list(refusals(H200)) == list(STRATEGIES)
    assert (H200.concurrent_managed, H200.pageable_access, H200.integrated) == (True, False, False)


@pytest.mark.parametrize(
    ("can_map", "integrated", "architecture", "refused"),
    [
        (True, False, 60, "7.0 or later"),
        (True, False, 70, None),
        (True, False, 90, None),
        (True, True, 72, None),
        (True, True, 87, None),
        (True, True, 110, None),
        (True, True, 53, "caches"),
        (True, True, 62, "caches"),
        (False, False, 90, "cannot map"),
    ],
)
def test_b46_slots_that_the_cpu_would_read_uncached_are_refused(
    can_map: bool, integrated: bool, architecture: int, refused: str | None
) -> None:
    traits = replace(H200, can_map=can_map, integrated=integrated, architecture=architecture)
    for strategy in ("zero_copy", "auto", "registered"):
        reason = refusal(strategy, traits)
        assert (reason is None) if refused is None else (reason is not None and refused in reason)


@pytest.mark.parametrize(
    ("strategy", "traits", "reason"),
    [
        ("registered", replace(H200, can_register=False), "register"),
        ("unified", replace(H200, managed=False), "managed"),
        ("staged", replace(H200, architecture=61), "7.0"),
        ("pageable", replace(H200, architecture=61), "7.0"),
    ],
)
def test_what_a_strategy_needs(strategy: str, traits: DeviceTraits, reason: str) -> None:
    said = refusal(strategy, traits)
    assert said is not None
    assert reason in said
    assert refusal("host", traits) is None


def test_copies_need_no_mapping() -> None:
    assert refusal("staged", replace(H200, can_map=False)) is None
    assert refusal("pageable", replace(H200, can_map=False)) is None
