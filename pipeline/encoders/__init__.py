"""How a result becomes bytes. ONE FILE PER ENCODER: each module here but ``base`` is one, found by its file name.

A broken encoder stops the start-up with its file's name; it is never only logged.
"""

from __future__ import annotations

import pkgutil
from functools import cache

from kernels.errors import UnknownNameError
from kernels.registry import broken, check_complete, load_class
from pipeline.encoders.base import Encoder

__all__ = ["Encoder", "all_encoders", "encoder_for"]


@cache
def all_encoders() -> dict[str, Encoder]:
    """Every encoder by name, sorted; loaded on first call.

    Raises:
        PluginError: a file in this folder does not hold exactly one encoder named like the file.
    """
    found: dict[str, Encoder] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if info.name != "base" and not info.name.startswith("_"):
            found[info.name] = load_encoder(f"{__name__}.{info.name}", info.name)
    return found


def load_encoder(module_name: str, name: str) -> Encoder:
    """The one encoder that a module defines.

    Raises:
        PluginError: the module fails to import, defines no encoder or several, or one of another name.
    """
    found = load_class("encoder", module_name, Encoder)
    if getattr(found, "name", None) != name:
        raise broken("encoder", found, f"must set name = {name!r}")
    check_complete("encoder", found)
    try:
        encoder: Encoder = found()
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
