"""What ops' parameters share: colours, odd numbers, lists and steps, as chain text, JSON and the page have them.

A schema says of itself what a control needs: ``format: color`` (an input of that type), ``type: array`` (a text field
that holds JSON).
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from kernels.formats import LEVEL
from kernels.image import Values

MAX_LIST_DEPTH = 3
_COLOR = re.compile(r"#[0-9a-f]{6}")


def _checked_color(value: str) -> str:
    lower = value.lower()
    if _COLOR.fullmatch(lower) is None:
        raise ValueError("not a colour of the form #rrggbb")
    return lower


# "#rrggbb" as CSS and HTML's colour inputs have it: red, green, blue, two hexadecimal digits each; kept in lower case.
Color = Annotated[
    str,
    AfterValidator(_checked_color),
    WithJsonSchema({"type": "string", "format": "color", "pattern": "^#[0-9a-fA-F]{6}$"}),
]


def bgr(color: Color) -> tuple[int, int, int]:
    """Blue, green and red, 0–255 each."""
    red, green, blue = bytes.fromhex(color[1:])
    return blue, green, red


def grey(color: Color) -> int:
    """What ``grayscale`` makes of the colour, 0–255: what stands for it in a grey picture."""
    blue, green, red = bgr(color)
    return (3735 * blue + 19235 * green + 9798 * red + (1 << 14)) >> 15


def fill_of(color: Color, picture: Values) -> tuple[int, ...]:
    """The colour as the channels of (H, W) or (H, W, 3) pixels, 8 or 16 bits each."""
    level = LEVEL[8 * picture.itemsize]
    return tuple(value * level for value in ((grey(color),) if picture.ndim == 2 else bgr(color)))


def _checked_odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd")
    return value


# The width of a window that has a middle; goes with ``"x-step": 2`` and an odd least value in the schema.
Odd = Annotated[int, AfterValidator(_checked_odd)]


def _tuples(value: Any, depth: int = MAX_LIST_DEPTH) -> Any:
    """Lists, as JSON and chain text have them, as the tuples that frozen parameters hold."""
    if depth and isinstance(value, (list, tuple)):
        return tuple(_tuples(item, depth - 1) for item in value)
    return value


# Makes lists good for a parameter that is a tuple, as frozen ones are. Comes last, behind the limits of the tuple:
# Annotated[tuple[Annotated[float, Field(ge=-8, le=8)], ...], Field(min_length=9, max_length=9), FROM_LIST].
FROM_LIST = BeforeValidator(_tuples)


def step_for(least: float, most: float) -> float:
    """By how much a control moves a number: the greatest 1, 2 or 5 times a power of ten that fits in there 100 times.

    1 where there is no room between the two, or more than a float holds.
    """
    room = (most - least) / 100
    if not 0 < room < math.inf:
        return 1
    power = 10.0 ** math.floor(math.log10(room))
    return float(f"{max(n * power for n in (1, 2, 5) if n * power <= room * (1 + 1e-9)):.0e}")
