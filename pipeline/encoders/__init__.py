"""How a result becomes bytes. ONE FILE PER ENCODER: each module here but ``base`` is one, found by its file name.

A broken encoder stops the start-up with its file's name; it is never only logged.
"""

from __future__ import annotations

import pkgutil
from functools import cache

from kernels.device import CudaDevice, Device
from kernels.errors import UnknownNameError
from kernels.registry import broken, check_complete, load_class
from pipeline.encoders.base import DeviceEncoder, Encoder, PictureEncoder

__all__ = [
    "DeviceEncoder",
    "Encoder",
    "all_encoders",
    "device_encoder_for",
    "encoder_for",
    "holds_results",
    "where_encoded",
]


@cache
def picture_encoders() -> dict[str, PictureEncoder]:
    """Every encoder of both kinds by name, sorted; loaded on first call.

    Raises:
        PluginError: a file in this folder does not hold exactly one encoder named like the file.
    """
    found: dict[str, PictureEncoder] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if info.name != "base" and not info.name.startswith("_"):
            found[info.name] = load_encoder(f"{__name__}.{info.name}", info.name)
    return found


def all_encoders() -> dict[str, Encoder]:
    """Every encoder of arrays by name, sorted. Raises what :func:`picture_encoders` raises."""
    return {name: encoder for name, encoder in picture_encoders().items() if isinstance(encoder, Encoder)}


def device_encoder_for(format: str, device: Device) -> DeviceEncoder | None:
    """What writes that format from the memory of that device, or None."""
    for encoder in picture_encoders().values():
        if isinstance(encoder, DeviceEncoder) and encoder.format == format and encoder.absence(device) is None:
            return encoder
    return None


def where_encoded(format: str, device: Device) -> str:
    """In words, who writes that format of what is on that device, and why."""
    if (found := device_encoder_for(format, device)) is not None:
        stay = ", where results stay" if device.holds_results else ""
        return f"{found.name} on the device{stay}"
    reasons = [
        encoder.absence(device)
        for encoder in picture_encoders().values()
        if isinstance(encoder, DeviceEncoder) and encoder.format == format
    ]
    return f"{encoder_for(format).name} on the CPU" + "".join(f": {reason}" for reason in reasons)


def holds_results(device: Device) -> bool:
    """Whether results should stay on that device: it has memory of its own, and writes what streams are made of."""
    apart = isinstance(device, CudaDevice) and not device.integrated
    return apart and device_encoder_for("jpg", device) is not None


def load_encoder(module_name: str, name: str) -> PictureEncoder:
    """The one encoder that a module defines.

    Raises:
        PluginError: the module fails to import, defines no encoder or several, or one of another name.
    """
    found = load_class("encoder", module_name, PictureEncoder)
    if getattr(found, "name", None) != name:
        raise broken("encoder", found, f"must set name = {name!r}")
    check_complete("encoder", found)
    try:
        encoder: PictureEncoder = found()
    except Exception as error:  # a plug-in's border: whatever it raises, the start-up stops and names the file
        raise broken("encoder", found, f"cannot be made: {type(error).__name__}: {error}") from error
    return encoder


@cache
def encoder_for(format: str, field: str = "format") -> Encoder:
    """The encoder of what a client asks for (``jpg``, ``png``, ``npy``).

    Raises:
        UnknownNameError: there is none; lists the known ones.
    """
    known = {encoder.format: encoder for encoder in all_encoders().values()}
    try:
        return known[format]
    except KeyError:
        raise UnknownNameError(field, "picture format", format, known) from None
