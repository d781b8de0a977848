"""What a camera offers: its formats, and for each the sizes and rates. Asked of the driver, in its order."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline.v4l2 import abi
from pipeline.v4l2.device import CameraDevice
from pipeline.v4l2.pixels import DECODED, FORMATS

MOST_SIZES = 64


@dataclass(frozen=True, slots=True)
class Mode:
    """A size with its rates in frames per second, highest first. ``until``: it is one of a range of sizes up to that;
    ``rates_are_bounds``: any rate between the two given is offered."""

    width: int
    height: int
    rates: tuple[Fraction, ...]
    until: tuple[int, int] | None = None
    step: tuple[int, int] = (1, 1)
    rates_are_bounds: bool = False

    def has_size(self, width: int, height: int) -> bool:
        if self.until is None:
            return (self.width, self.height) == (width, height)
        inside = self.width <= width <= self.until[0] and self.height <= height <= self.until[1]
        return inside and not ((width - self.width) % self.step[0] or (height - self.height) % self.step[1])

    def has_rate(self, rate: Fraction) -> bool:
        """True also where the driver does not say."""
        if self.rates_are_bounds:
            return self.rates[-1] <= rate <= self.rates[0]
        return not self.rates or any(abs(one - rate) <= rate / 100 for one in self.rates)

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"width": self.width, "height": self.height}
        if self.until is not None:
            shown |= {"max_width": self.until[0], "max_height": self.until[1], "step": list(self.step)}
        rates = [round(float(rate), 3) for rate in self.rates]
        return shown | ({"fps_range": rates[::-1]} if self.rates_are_bounds else {"fps": rates})


@dataclass(frozen=True, slots=True)
class Offered:
    """A format: its four letters, its own name, and its sizes. ``usable``: Pinhole takes it."""

    code: str
    description: str
    emulated: bool
    modes: tuple[Mode, ...]

    @property
    def usable(self) -> bool:
        return self.code in FORMATS or self.code in DECODED

    def mode(self, width: int, height: int) -> Mode | None:
        return next((mode for mode in self.modes if mode.has_size(width, height)), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.code.strip(), "description": self.description, "usable": self.usable,
            "emulated": self.emulated, "sizes": [mode.to_json() for mode in self.modes],
        }  # fmt: skip


def offered(device: CameraDevice, buf_type: int, *, sizes: bool = True) -> tuple[Offered, ...]:
    """Every format; ``sizes`` asks for those too, some hundred requests at a webcam. Raises RequestError."""
    found = []
    for desc in device.each("ENUM_FMT", abi.ENUM_FMT, lambda i: abi.FmtDesc(index=i, type=buf_type)):
        modes = _modes(device, desc.pixelformat) if sizes else ()
        name = desc.description.decode(errors="replace")
        emulated = bool(desc.flags & abi.FMT_FLAG_EMULATED)
        found.append(Offered(abi.code_of(desc.pixelformat), name, emulated, modes))
    return tuple(found)


def _modes(device: CameraDevice, pixelformat: int) -> tuple[Mode, ...]:
    modes = []
    make = lambda i: abi.FrmSizeEnum(index=i, pixel_format=pixelformat)  # noqa: E731
    for size in device.each("ENUM_FRAMESIZES", abi.ENUM_FRAMESIZES, make, MOST_SIZES):
        if size.type == abi.DISCRETE:
            width, height = size.discrete.width, size.discrete.height
            rates, bounds = _rates(device, pixelformat, width, height)
            modes.append(Mode(width, height, rates, rates_are_bounds=bounds))
            continue
        s = size.stepwise
        step = (max(1, s.step_width), max(1, s.step_height)) if size.type == abi.STEPWISE else (1, 1)
        rates, bounds = _rates(device, pixelformat, s.max_width, s.max_height)
        modes.append(Mode(s.min_width, s.min_height, rates, (s.max_width, s.max_height), step, bounds))
        break
    return tuple(modes)


def _rates(device: CameraDevice, pixelformat: int, width: int, height: int) -> tuple[tuple[Fraction, ...], bool]:
    rates = []
    make = lambda i: abi.FrmIvalEnum(index=i, pixel_format=pixelformat, width=width, height=height)  # noqa: E731
    for one in device.each("ENUM_FRAMEINTERVALS", abi.ENUM_FRAMEINTERVALS, make):
        if one.type != abi.DISCRETE:
            bounds = [rate for end in (one.stepwise.min, one.stepwise.max) if (rate := rate_of(end)) is not None]
            return tuple(sorted(bounds, reverse=True)), len(bounds) == 2
        if (rate := rate_of(one.discrete)) is not None:
            rates.append(rate)
    return tuple(sorted(set(rates), reverse=True)), False


def rate_of(interval: abi.Fract) -> Fraction | None:
    """Frames per second of a time per frame; None where the driver gives nonsense."""
    if not interval.numerator or not interval.denominator:
        return None
    return Fraction(interval.denominator, interval.numerator)
