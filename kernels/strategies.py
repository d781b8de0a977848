"""Memory strategies: where frames lie, how they come to the device and go, and which of that a device offers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# In the order in which they are shown; the first is what a GPU is used with unless something else is asked for.
STRATEGIES: Mapping[str, str] = {
    "zero_copy": "slots in mapped pinned memory, which the GPU reads and writes in place",
    "auto": "slots in mapped pinned memory; in place or by copies, each way, whichever was measured to be faster",
    "registered": "slots in ordinary memory that is made visible to the GPU (cudaHostRegister) and used in place",
    "staged": "slots in pinned memory; bands of rows are copied both ways at once while the GPU computes",
    "unified": "slots in managed memory (cudaMallocManaged)",
    "pageable": "slots in ordinary memory, synchronous copies of whole frames: what people start from",
    "host": "no GPU: OpenCV on the CPU",
}
DEFAULT_STRATEGY = "zero_copy"


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """What a CUDA device says of itself (cudaDeviceAttr): what decides on the strategies that it offers."""

    architecture: int  # 87 is compute capability 8.7
    integrated: bool  # shares its memory with the CPU
    can_map: bool  # host memory into its address space
    can_register: bool
    managed: bool
    concurrent_managed: bool  # the CPU may use managed memory while the GPU works
    pageable_access: bool  # it sees memory that is not pinned
    one_pointer: bool  # host and device address of pinned memory are the same
    waits_for_words: bool = False  # its streams can wait for a word in memory

    @classmethod
    def of(cls, attributes: Mapping[str, int], architecture: int, waits_for_words: bool) -> DeviceTraits:
        """From CUDA's attributes by CuPy's names."""

        def has(name: str) -> bool:
            return bool(attributes.get(name, 0))

        return cls(
            architecture=architecture,
            integrated=has("Integrated"),
            can_map=has("CanMapHostMemory"),
            can_register=has("HostRegisterSupported"),
            managed=has("ManagedMemory"),
            concurrent_managed=has("ConcurrentManagedAccess"),
            pageable_access=has("PageableMemoryAccess"),
            one_pointer=has("CanUseHostPointerForRegisteredMem"),
            waits_for_words=waits_for_words,
        )


def refusal(strategy: str, traits: DeviceTraits) -> str | None:
    """Why a device does not offer a strategy, or None.

    Before compute capability 7.2 an integrated GPU's pinned memory is not cached by the CPU (CUDA for Tegra
    application note): each encoder would read its pictures several times slower, and nothing would say so.
    """
    if strategy == "host":
        return None
    if strategy in ("zero_copy", "auto", "staged", "registered"):
        if strategy != "staged" and not traits.can_map:
            return "cannot map host memory"
        if strategy == "registered" and not traits.can_register:
            return "cannot register host memory (cudaHostRegister)"
        if traits.integrated and traits.architecture < 72:
            return (
                "leaves pinned memory out of the CPU's caches, so that every picture would be read several times slower"
            )
    if strategy == "unified" and not traits.managed:
        return "has no managed memory"
    if traits.architecture < 70:
        return f"has compute capability {traits.architecture / 10:.1f}; the kernels need 7.0 or later"
    return None


def refusals(traits: DeviceTraits) -> dict[str, str | None]:
    """For each strategy why the device does not offer it, or None."""
    return {name: refusal(name, traits) for name in STRATEGIES}
