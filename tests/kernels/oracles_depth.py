"""What a depth means to an oracle: the greatest value, and how much of it one of 255 levels is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.image import Values


def most(picture: Values) -> int:
    """255 or 65535."""
    return int(np.iinfo(picture.dtype).max)


def level(picture: Values) -> int:
    """1 or 257."""
    return most(picture) // 255


def saturated(values: npt.NDArray[Any], picture: Values) -> Values:
    """Whole numbers as values of the picture's depth."""
    result: Values = np.clip(values, 0, most(picture)).astype(picture.dtype)
    return result
