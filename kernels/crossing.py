"""How a frame's bytes cross between host memory and the device: in place, or by copies in bands of rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.geometry import BAND_ROWS
from kernels.plan import Plan

# Each band costs 5 to 10 µs more, and saves its share of the time in which nothing else happens: measured on an H200,
# four are best for 6 MB and eight for 25 (kernels/TUNING.md).
LEAST_BAND_BYTES = 1_500_000


@dataclass(frozen=True, slots=True)
class Crossing:
    """``into`` and ``out``: 0 is in place, through the pointer that the GPU has of it; else in so many copies."""

    into: int = 0
    out: int = 0

    def __str__(self) -> str:
        return f"{_words('in', self.into)}, {_words('out', self.out)}"


IN_PLACE = Crossing()
WHOLE = Crossing(1, 1)


def _words(direction: str, bands: int) -> str:
    return f"{direction} mapped" if bands == 0 else f"{direction} copied" + (f" in {bands} bands" if bands > 1 else "")


def bands(nbytes: int, wanted: int = 8, least_bytes: int = LEAST_BAND_BYTES) -> int:
    """How many copies ``nbytes`` are worth: at most ``wanted``, none of less than ``least_bytes`` but a single one."""
    return max(1, min(wanted, nbytes // least_bytes))


def staged(plan: Plan) -> Crossing:
    """Both ways by copies, as many as the plan's bytes are worth."""
    return Crossing(bands(plan.link_bytes_in), bands(plan.link_bytes_out))


def band_rows(height: int, count: int) -> int:
    """Rows of each of ``count`` bands (the last may have fewer): whole bands of those that passes hand over.

    There may be fewer bands than asked for, never more.
    """
    each = -(-height // count)
    return -(-each // BAND_ROWS) * BAND_ROWS
