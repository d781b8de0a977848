"""Tables that OpenCV has a quicker call for yield what looking up each value does, and so do their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.image import Pixels
from kernels.op import look_up

VALUES = np.arange(256)
TABLES = {
    "identity": VALUES,
    "invert": 255 - VALUES,
    "black": 0 * VALUES,
    "white": 0 * VALUES + 255,
    "levels apart": np.where(VALUES > 9, 200, 3),
    "band": np.where((VALUES > 9) & (VALUES < 90), 200, 0),
    **{f"above {t}": np.where(t < VALUES, most, 0) for t, most in ((0, 255), (127, 1), (254, 200))},
    **{f"up to {t}": np.where(t < VALUES, 0, most) for t, most in ((0, 1), (128, 255), (254, 9))},
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("shape", [(3, 257), (5, 67, 3)])
def test_each_value_becomes_its_entry(name: str, shape: tuple[int, ...]) -> None:
    picture: Pixels = (np.arange(np.prod(shape)) * 37 % 256).astype(np.uint8).reshape(shape)
    room = np.full((shape[0], shape[1] + 2, *shape[2:]), 77, np.uint8)
    for changed in (None, 0, 128, 255):
        table = TABLES[name].astype(np.uint8)
        if changed is not None:
            table[changed] ^= 5
        look_up(picture, table, room[:, 1:-1])
        np.testing.assert_array_equal(room[:, 1:-1], table[picture])
        assert (room[:, [0, -1]] == 77).all()


@pytest.mark.parametrize(
    ("gain", "offset"), [(1.1, 5), (0.5, 0), (0.5, 0.5), (2.5, 17.5), (1, -40), (16, 255), (0, -9)]
)
def test_lines_are_used_only_where_they_are_the_table(gain: float, offset: float) -> None:
    table = np.clip(np.floor(gain * VALUES + offset + 0.5), 0, 255).astype(np.uint8)
    for width in (1, 7, 257):
        picture: Pixels = (np.arange(256 * width) * 37 % 256).astype(np.uint8).reshape(256, width)
        for entries in (table, table ^ (VALUES == 77).astype(np.uint8)):
            room = np.full((256, width + 2), 77, np.uint8)
            look_up(picture, entries, room[:, 1:-1], (gain, offset))
            np.testing.assert_array_equal(room[:, 1:-1], entries[picture])
            assert (room[:, [0, -1]] == 77).all()
