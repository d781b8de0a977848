"""How passes lie over their pictures: the numbers of the headers, and what a launch takes, by hand."""

from __future__ import annotations

import re

import pytest

from kernels import geometry
from kernels.chain import parse_chain
from kernels.codegen import headers
from kernels.formats import BGR8, GRAY8, PixelFormat
from kernels.image import ImageSpec
from kernels.local_tables import MAX_GRID
from kernels.plan import chain_params, make_plan


def constants() -> dict[str, str]:
    """Every ``constexpr int NAME = VALUE`` of the headers."""
    found: dict[str, str] = {}
    for text in headers().values():
        found.update(re.findall(r"^constexpr int (\w+) = (\w+);", text, re.MULTILINE))
    return found


def test_the_numbers_are_those_of_the_headers() -> None:
    there = constants()
    for name in ("THREADS", "BAND_ROWS", "SEGMENT_PX", "SEGMENT_ROWS", "MARK_HALO", "JOIN_PX"):
        assert int(there[name]) == getattr(geometry, name), name
    assert there["TILE_ROWS"] == "BAND_ROWS"
    assert int(there["MAX_REGIONS"]) == MAX_GRID**2
    assert int(there["PIXEL_THREADS"]) == geometry.THREADS
    assert int(there["EGRESS_UNROLL"]) * geometry.THREADS * int(there["WORD"]) == geometry.EGRESS_BYTES
    assert int(there["QUAD_ROWS"]) - 1 == geometry.SLACK_ROWS


def test_the_halo_is_the_sum_of_the_radii_that_the_values_ask_for() -> None:
    chain = parse_chain("gaussian_blur(ksize=9) | gamma | sharpen")
    plan = make_plan(chain, ImageSpec.make(BGR8, 130, 33))
    (_, tiles, _) = plan.passes
    assert geometry.radii(plan, tiles, chain_params(chain)) == [4, 1]
    made = geometry.tile_geometry(plan, tiles, chain_params(chain))
    # 5 and 6 more, up to whole words of 16 pixels.
    assert (made.halo, made.margin) == (5, 16)
    picture = (16 + 2 * 5 + 3) * (128 + 2 * 16) * 3
    sums = 2 * (16 + 2 * 1 + 3) * (384 + 2 * (4 + 12))  # the blur's, of 16 bits, one pixel around the tile
    assert picture < sums
    assert made.buffer_bytes == -(-sums // 16) * 16
    assert geometry.shared_bytes(plan, tiles, chain_params(chain)) == 256 + 2 * made.buffer_bytes


@pytest.mark.parametrize(
    ("format", "pieces"),
    # Ingest: 512 px by 2 rows; tiles: 128 px of colour, 384 of grey, by 16 rows; egress: 16 KiB of the result.
    [(BGR8, (1 * 17, 2 * 3, 1)), (GRAY8, (1 * 17, 1 * 3, 1))],
    ids=str,
)
def test_pieces_cover_the_picture(format: PixelFormat, pieces: tuple[int, ...]) -> None:
    chain = parse_chain("sobel")
    plan = make_plan(chain, ImageSpec.make(format, 130, 33))
    assert tuple(geometry.pieces(plan, one, chain_params(chain)) for one in plan.passes) == pieces
