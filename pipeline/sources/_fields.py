"""Field types of source settings: what a query's text may say, with a JSON Schema for forms.

Each takes the text of a query as well as the Python value. ``x-allowed`` in the schema is what is allowed, for people.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from kernels.image import MAX_SIDE_PX

# Bounded on purpose: Fraction("1e999999999") would compute for ever.
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?:/([0-9]{1,9}(?:\.[0-9]{1,9})?))?")
_SIZE = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

RATE_ALLOWED = "a number of frames per second, also as a fraction (30000/1001)"
SIZE_ALLOWED = f"WIDTHxHEIGHT, 1x1 to {MAX_SIDE_PX}x{MAX_SIDE_PX} px"


def parse_rate(value: Any) -> Fraction:
    """A positive rate from ``"30"``, ``"29.97"``, ``"30000/1001"`` or a number; exact. Raises ValueError."""
    if isinstance(value, str):
        match = _RATE.fullmatch(value)
        if match is None:
            raise ValueError("is not a positive number")
        numerator, denominator = Fraction(match[1]), Fraction(match[2] or 1)
        if denominator == 0:
            raise ValueError("divides by zero")
        rate = numerator / denominator
    elif isinstance(value, (int, float, Fraction)) and not isinstance(value, bool) and math.isfinite(value):
        rate = Fraction(value)
    else:
        raise ValueError("is not a positive number")
    return rate


def parse_size(value: Any) -> tuple[int, int]:
    """(width, height) from ``"1280x720"`` or a pair of integers. Raises ValueError."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError("is not WIDTHxHEIGHT")
        width, height = int(match[1]), int(match[2])
    elif isinstance(value, (tuple, list)) and len(value) == 2 and all(type(v) is int for v in value):
        width, height = value
    else:
        raise ValueError("is not WIDTHxHEIGHT")
    return width, height


def parse_boolean(value: Any) -> bool:
    """True or False from ``true``, ``1``, ``false``, ``0`` or a bool. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _BOOLEANS:
        return _BOOLEANS[value]
    raise ValueError("is neither true nor false")


def _rate_text(rate: Fraction) -> str:
    return str(rate)


def _size_text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


Rate = Annotated[
    Fraction,
    BeforeValidator(parse_rate),
    PlainSerializer(_rate_text),
    WithJsonSchema({"type": "string", "pattern": f"^{_RATE.pattern}$", "x-unit": "1/s", "x-allowed": RATE_ALLOWED}),
]
Size = Annotated[
    tuple[int, int],
    BeforeValidator(parse_size),
    PlainSerializer(_size_text),
    WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$", "x-unit": "px", "x-allowed": SIZE_ALLOWED}),
]
Flag = Annotated[
    bool,
    BeforeValidator(parse_boolean),
    WithJsonSchema({"type": "boolean", "x-allowed": "true, false, 1, 0"}),
]
