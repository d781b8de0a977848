"""Which Pinhole this is."""

from __future__ import annotations

from functools import cache
from importlib import metadata

DISTRIBUTION = "pinhole-vision"


@cache
def version() -> str:
    """The installed distribution's version; ``0+unknown`` in a tree that was not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0+unknown"
