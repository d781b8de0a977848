"""What ``pinhole bench transfer`` measures and what it may allocate for it: sizes, ways, limits. Pure; no CUDA here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from kernels.errors import InputError

Direction = Literal["in", "out", "both", "host"]
Memory = Literal["pageable", "pinned", "registered NumPy", "registered shm", "managed", "host"]
How = Literal[
    "sync", "streams", "kernel", "first touch", "prefetch", "memcpy", "copyTo", "fresh copy", "fresh touch"
]  # fmt: skip

DIRECTIONS: Mapping[Direction, str] = {
    "in": "host → device",
    "out": "device → host",
    "both": "both at once",
    "host": "host → host",
}
DEFAULT_SIZES = "1M,10M,100M,1G"
LEAST_BYTES, MOST_BYTES = 1 << 12, 64 * 10**9
ALLOWED = "whole numbers with K, M, G (1000s) or Ki, Mi, Gi (1024s), from 4Ki to 64G, such as 1M,10M,100M,1G"

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_NAMES = (("GB", 10**9), ("GiB", 1 << 30), ("MB", 10**6), ("MiB", 1 << 20), ("kB", 10**3), ("KiB", 1 << 10))


def parse_size(text: str, field: str = "--sizes") -> int:
    """Bytes of ``10M``, ``16 MiB``, ``4096``. Raises InputError, which says what is allowed."""
    found = re.fullmatch(r"\s*([0-9]{1,12})\s*([A-Za-z]*)\s*", text)
    unit = found[2].lower() if found else ""
    unit = unit[:-1] if len(unit) > 1 and unit.endswith("b") else unit
    if found is None or unit not in _UNITS:
        raise InputError(field, f"{text.strip()[:40]!r} is no size", ALLOWED)
    nbytes = int(found[1]) * _UNITS[unit]
    if not LEAST_BYTES <= nbytes <= MOST_BYTES:
        raise InputError(field, f"{text.strip()[:40]!r} is out of range", ALLOWED)
    return nbytes


def parse_sizes(text: str, field: str = "--sizes") -> tuple[int, ...]:
    """The sizes of a comma-separated list, each once, ascending. Raises InputError."""
    return tuple(sorted({parse_size(part, field) for part in text.split(",")}))


def size_text(nbytes: int) -> str:
    """``10 MB``, ``16 MiB``, ``4097 B``: the largest unit that it is a whole number of; parse_size reads it back."""
    for name, factor in _NAMES:
        if nbytes and nbytes % factor == 0:
            return f"{nbytes // factor} {name}"
    return f"{nbytes} B"


def about(nbytes: int) -> str:
    """``1.07 GB``: to three digits."""
    for name, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= 0.9995 * factor:
            return f"{nbytes / factor:.3g} {name}"
    return f"{nbytes} B"


@dataclass(frozen=True, slots=True)
class Way:
    """One way for bytes to get from here to there. ``streams`` counts only for ``how`` streams."""

    direction: Direction
    memory: Memory
    how: How
    name: str
    streams: int = 0

    @property
    def is_baseline(self) -> bool:
        """What the others of its direction are compared with."""
        return self.how == "memcpy" or (self.memory, self.how) == ("pageable", "sync")

    @property
    def kinds(self) -> tuple[str, str, str]:
        """What a device may lack for it, as :class:`Room` names it."""
        return self.memory, self.how, f"{self.memory}, {self.how}"


def _one_way(direction: Direction) -> Iterator[Way]:
    verb = "read" if direction == "in" else "written"
    yield Way(direction, "pageable", "sync", "pageable, cudaMemcpy")
    yield Way(direction, "pinned", "sync", "pinned, cudaMemcpy")
    for streams in (1, 2, 4, 8):
        yield Way(direction, "pinned", "streams", f"pinned, async, {streams} stream{'s' * (streams > 1)}", streams)
    yield Way(direction, "pinned", "kernel", f"mapped, {verb} by a kernel")
    yield Way(direction, "registered NumPy", "streams", "registered NumPy, async copy", 1)
    yield Way(direction, "registered NumPy", "kernel", "registered NumPy, in place")
    yield Way(direction, "registered shm", "streams", "registered shared memory, async copy", 1)
    yield Way(direction, "registered shm", "kernel", "registered shared memory, in place")
    yield Way(direction, "managed", "first touch", "managed, first touch")
    yield Way(direction, "managed", "prefetch", "managed, prefetched")
    yield Way(direction, "pageable", "kernel", "pageable, in place")


CUDA_WAYS: tuple[Way, ...] = (
    *_one_way("in"),
    *_one_way("out"),
    Way("both", "pageable", "sync", "pageable, one after the other"),
    Way("both", "pinned", "streams", "pinned, both copy engines", 2),
    Way("both", "pinned", "kernel", "mapped, read and written by a kernel"),
)
HOST_WAYS: tuple[Way, ...] = (
    Way("host", "host", "memcpy", "memcpy"),
    Way("host", "host", "copyTo", "cv2.copyTo"),
    Way("host", "host", "fresh copy", "memcpy into fresh memory"),
    Way("host", "host", "fresh touch", "fresh memory, a byte a page"),
)


@dataclass(frozen=True, slots=True)
class Room:
    """What may be taken now, in bytes, margins already left out.

    ``shared``: device memory is the host's own (an integrated GPU). ``absent`` says by ``Way.kinds`` what this device
    lacks, and why. ``pinned_limit`` says where the pinned budget comes from.
    """

    host_bytes: int
    pinned_bytes: int = 0
    shm_bytes: int = 0
    device_bytes: int = 0
    shared: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)
    pinned_limit: str = "--max-pinned"


@dataclass(frozen=True, slots=True)
class Need:
    """What a way allocates at once for a size, in bytes; pinned, shared and managed memory count as host memory too."""

    host_bytes: int
    pinned_bytes: int = 0
    shm_bytes: int = 0
    device_bytes: int = 0


def need(way: Way, nbytes: int) -> Need:
    """Everything the way holds while it is measured: a source and a target for each direction."""
    if way.memory == "host":
        return Need(2 * nbytes)
    pairs = 2 if way.direction == "both" else 1
    held = pairs * nbytes
    if way.memory == "managed":
        return Need(held, device_bytes=2 * held)  # the managed bytes migrate to the device, and are copied there
    pinned = 0 if way.memory == "pageable" else held
    return Need(held, pinned, held if way.memory == "registered shm" else 0, held)


def refusal(way: Way, nbytes: int, room: Room) -> str | None:
    """Why the way is not measured at this size, in words with figures, or None if it may be."""
    for kind in way.kinds:
        if kind in room.absent:
            return room.absent[kind]
    asked = need(way, nbytes)
    limits = (
        ("pinned memory", asked.pinned_bytes, room.pinned_bytes, room.pinned_limit),
        ("shared memory (/dev/shm)", asked.shm_bytes, room.shm_bytes, "what is free there"),
        ("device memory", asked.device_bytes, room.device_bytes, "what is free there, less a margin"),
        ("host memory", asked.host_bytes, room.host_bytes, "what is free, less a margin"),
    )
    for what, wanted, there, limit in limits:
        if wanted > there:
            return f"needs {about(wanted)} of {what}; {about(max(there, 0))} may be taken ({limit})"
    together = asked.host_bytes + asked.device_bytes
    if room.shared and together > min(room.host_bytes, room.device_bytes):
        there = max(min(room.host_bytes, room.device_bytes), 0)
        return f"needs {about(together)} of the memory that CPU and GPU share; {about(there)} may be taken"
    return None


def holdings(ways: Sequence[Way]) -> list[tuple[Memory, bool, tuple[Way, ...]]]:
    """(memory, whether both directions are held, its ways): what is allocated together, one after the other."""

    def key(way: Way) -> tuple[Memory, bool]:
        return way.memory, way.direction == "both"

    places = {found: index for index, found in enumerate(dict.fromkeys(key(way) for way in ways))}
    ordered = sorted(ways, key=lambda way: places[key(way)])
    return [(memory, paired, tuple(group)) for (memory, paired), group in groupby(ordered, key)]


def chunks(nbytes: int, count: int, alignment: int = 256) -> list[tuple[int, int]]:
    """(offset, bytes) of at most ``count`` parts that cover ``nbytes`` in order; offsets are aligned."""
    each = -(-nbytes // count)
    each += -each % alignment
    return [(start, min(each, nbytes - start)) for start in range(0, nbytes, each)]
