"""What the benchmark of chains measures: a chain for a source (a case), and the ways to compute it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.chain import Chain, parse_chain
from kernels.errors import InputError, PinholeError, UnknownNameError
from kernels.formats import PixelFormat
from kernels.image import ImageSpec
from kernels.plan import Plan, make_plan, slot_source_spec
from kernels.registry import all_ops, own_ops

STD4 = "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sharpen"
STANDARD = {
    "point": "gamma(gamma=1.2)",
    "std4": STD4,
    "std8": "white_balance(red=1.2, blue=1.1) | gaussian_blur(ksize=5) | gain_offset(gain=1.1, offset=5) | "
    "gamma(gamma=1.2) | saturation(factor=1.3) | sharpen | unsharp_mask(ksize=5, amount=0.5) | overlay_text",
}


class NoEquivalentError(PinholeError):
    """A way of the comparison cannot do this case; ``what`` is what it has nothing for."""

    def __init__(self, way: str, what: str) -> None:
        self.way = way
        self.what = what
        super().__init__(f"{way} has nothing here for {what}")


@dataclass(frozen=True, slots=True)
class Ready:
    """A way that may run. ``frame`` computes one frame and returns when it is done; ``close`` gives everything back.

    ``settle`` takes what ``frame`` returned, behind the clock: what a camera does once a frame has been shown.
    """

    frame: Callable[[], Any]
    close: Callable[[], object]
    settle: Callable[[Any], object] = lambda end: None


@dataclass(frozen=True, slots=True)
class Case:
    """One chain for one source. ``on_device``: the result stays in device memory, where encoders on a GPU take it."""

    name: str
    chain: Chain
    plan: Plan
    on_device: bool = False

    @property
    def source_text(self) -> str:
        """``1920x1080 NV12 → I420 on the device``."""
        source, result = self.plan.source, self.plan.result
        target = f" → {result.format}" if self.plan.converts else ""
        device = (" on the device" if target else " → device") if self.on_device else ""
        return f"{source.width}x{source.height} {source.format}{target}{device}"

    @property
    def text(self) -> str:
        return f"{self.name}, {self.source_text}"

    @property
    def bytes_in(self) -> int:
        """Bytes of a frame that cross the link towards the device."""
        return self.plan.link_bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes of a frame that cross the link from the device."""
        return 0 if self.on_device else self.plan.link_bytes_out


def make_case(
    chain: str, format: PixelFormat, width: int, height: int, target: PixelFormat | None = None, *,
    on_device: bool = False, field: str = "chain",
) -> Case:  # fmt: skip
    """The case of a chain's text, or of the name of a standard one, over a source laid out as slots are.

    Raises:
        InputError: the chain or the size is not acceptable, or the target cannot be made of it.
    """
    if chain.isidentifier() and chain not in STANDARD and chain not in all_ops():
        listing = f"{', '.join(STANDARD)}, or a chain of what `pinhole ops` lists"
        raise UnknownNameError(
            field, "chain or op", chain[:60], [*STANDARD, *all_ops()], listing=listing, more=own_ops()
        )
    parsed = parse_chain(STANDARD.get(chain, chain), field=field)
    name = chain if chain in STANDARD else " | ".join(_brief(part) for part in chain.split("|")) or "(empty)"
    source = slot_source_spec(ImageSpec.make(format, width, height))
    return Case(name, parsed, make_plan(parsed, source, target), on_device)


def _brief(part: str) -> str:
    return " ".join(part.split())


def missing_ops(chain: str) -> list[str]:
    """Which operations of a standard chain this Pinhole does not have."""
    names = [part.partition("(")[0].strip() for part in STANDARD[chain].split("|")]
    return [name for name in names if name not in all_ops()]


def size_of(text: str, field: str = "size") -> tuple[int, int]:
    """(width, height) from ``1920x1080``. Raises InputError."""
    sides = re.fullmatch(r"([0-9]{1,5})[x×]([0-9]{1,5})", text)
    if sides is None:
        raise InputError(field, f"{text[:60]!r} is no size", "WIDTHxHEIGHT, as 1920x1080")
    return int(sides[1]), int(sides[2])


def traffic(plan: Plan) -> tuple[int, int]:
    """Bytes that a frame's passes read and write, each picture once: halos are read again, mostly from caches."""
    read = written = 0
    for one in plan.passes:
        read += plan.source.pixel_bytes if one is plan.passes[0] else plan.pictures[one.first].pixel_bytes
        if one.to_result:
            written += plan.result.pixel_bytes
        elif one.kind.makes_picture:
            written += plan.pictures[one.last].pixel_bytes
    return read, written
