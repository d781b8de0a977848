"""What is said of a plan: counted pixel by pixel, and each reason that a pass may have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.chain import Chain, parse_chain
from kernels.explain import Explanation, explain
from kernels.formats import BGR8, GRAY8, GRAY16, NV12, PixelFormat
from kernels.image import ImageSpec
from kernels.op import OpKind, TemporalOp
from kernels.plan import PassKind, Plan, chain_params, make_plan, reads_in_place, slot_source_spec, unfused
from tests.kernels.test_plan import Counts, Remembers, chain_with


def planned(chain: Chain, format: PixelFormat = BGR8, size: tuple[int, int] = (1920, 1080), **how: Any) -> Plan:
    return make_plan(chain, slot_source_spec(ImageSpec.make(format, *size)), **how)


def explained(text: str, format: PixelFormat = BGR8, size: tuple[int, int] = (1920, 1080)) -> Explanation:
    chain = parse_chain(text)
    return explain(planned(chain, format, size), chain_params(chain))


def touched(picture: ImageSpec, tile: tuple[int, int], halo: int) -> int:
    """Pixels of each tile and of a frame of ``halo`` around it, tile by tile, counted one by one."""
    total = 0
    for y0 in range(0, picture.height, tile[1]):
        for x0 in range(0, picture.width, tile[0]):
            rows, columns = min(tile[1], picture.height - y0), min(tile[0], picture.width - x0)
            total += np.pad(np.zeros((rows, columns)), halo).size
    return total


CHAINS = [
    "",
    "invert | gamma",
    "gaussian_blur(ksize=5) | gamma | gain_offset | sharpen",
    "gaussian_blur(ksize=31) | gaussian_blur(ksize=3)",
    "invert | grayscale | sobel | invert | flip | sharpen | sobel",
    "sobel | resize(width=641) | invert | grayscale | gaussian_blur",
    "erode | crop(width=33, height=17) | sobel",
]


@pytest.mark.parametrize("size", [(1, 1), (130, 33), (641, 479)], ids=str)
@pytest.mark.parametrize("text", CHAINS)
@pytest.mark.parametrize("fused", [True, False])
def test_the_numbers_are_those_of_a_count(text: str, size: tuple[int, int], fused: bool) -> None:
    chain = parse_chain(text)
    params = chain_params(chain)
    plan = planned(chain, NV12, size)
    plan = plan if fused else unfused(plan)
    made = explain(plan, params, fused=fused)
    assert len(made.passes) == len(plan.passes)
    moved, held = 0, 0
    for one, shown in zip(plan.passes, made.passes, strict=True):
        before, after = plan.pictures[one.first], plan.pictures[one.last]
        ops = range(one.first, one.last)
        tiles = one.kind is PassKind.TILES
        halo = sum(plan.ops[i].radius(params[i]) for i in ops) if tiles else 0
        gathers = tiles and bool(ops) and plan.ops[one.first].kind is OpKind.GATHER
        assert (shown.kind, shown.halo_px) == (one.kind, halo)
        assert [name for sweep in shown.sweeps for name in sweep.ops] == [plan.ops[i].name for i in ops]
        if one.kind is PassKind.INGEST:
            assert (shown.reads.place, shown.reads.nbytes) == ("slot", plan.source.pixel_bytes)
        else:
            width = 128 if 3 in {p.format.channels for p in plan.pictures[one.first + gathers : one.last + 1]} else 384
            area = before.width * before.height
            read = touched(before, (width, 16), halo) if tiles and not gathers else area
            assert (shown.reads.place, shown.reads.nbytes) == ("device memory", read * before.format.channels)
            assert shown.read_overhead == (None if gathers else pytest.approx(read / area - 1))
            moved += shown.reads.nbytes
            if tiles:
                assert shown.tile_px == (width, 16)
                left, computed = halo, 0
                for sweep in shown.sweeps:
                    left -= next(plan.ops[i].radius(params[i]) for i in ops if plan.ops[i].name == sweep.ops[0])
                    assert sweep.halo_px == left
                    computed += touched(after, (width, 16), left)
                assert left == 0
                whole = len(shown.sweeps) * after.width * after.height
                assert shown.compute_overhead == pytest.approx(computed / whole - 1)
        assert shown.writes is not None
        if one.to_result:
            assert (shown.writes.place, shown.writes.nbytes) == ("result", plan.result.nbytes)
        else:
            assert shown.writes.nbytes == after.width * after.height * after.format.channels
            moved += shown.writes.nbytes
            held += after.nbytes
    assert (made.link_bytes_in, made.link_bytes_out) == (plan.link_bytes_in, plan.link_bytes_out)
    assert (made.device_bytes, made.held_bytes) == (moved, held)


def test_std4_in_numbers() -> None:
    made = explained("gaussian_blur(ksize=5) | gamma | gain_offset | sharpen", NV12)
    ingest, tiles = made.passes
    assert ingest.reads.nbytes == 1920 * 1080 * 3 // 2
    assert tiles.sweeps[0].ops == ("gaussian_blur", "gamma", "gain_offset"), "tables ride on the blur"
    # 15 x 68 tiles (the last row of them half as high) with 3 pixels around each.
    assert tiles.reads.nbytes == (1920 + 6 * 15) * (1080 + 6 * 68) * 3
    assert tiles.read_overhead == pytest.approx(0.4424, abs=1e-4)
    assert made.device_bytes == 1920 * 1080 * 3 + tiles.reads.nbytes


def reasons(made: Explanation) -> list[str]:
    return [one.because for one in made.passes]


def test_each_reason_for_a_pass_is_said() -> None:
    first = "the slot is read over the link, each byte once"
    assert reasons(explained("")) == [first]
    assert reasons(explained("invert | gamma")) == [f"{first}, through the point operations at the chain's head"]
    assert reasons(explained("sobel")) == [first, "sobel reads around a pixel: it works on tiles"]
    assert reasons(explained("sobel | flip"))[2] == "flip gathers: it may read any row of its picture"
    assert reasons(explained("gaussian_blur(ksize=3) | invert | sharpen | gaussian_blur(ksize=3)"))[2] == (
        "the largest windows reach 31 px together (gaussian_blur 15, sharpen 1, gaussian_blur 15), and 16 is the most"
    )
    assert reasons(explained("resize(width=641)"))[2] == (
        "a row of the result is 1923 bytes, no whole number of 16-byte words"
    )
    assert reasons(explained("sobel", GRAY8, (641, 9)))[-1].startswith("a row of the result is 641 bytes")


def test_tiles_of_16_bits_and_of_8_are_not_shared() -> None:
    made = explained("sobel | levels | sharpen", GRAY16)
    assert made.passes[-1].because == "sharpen reads around a pixel of 8 bits, and the tiles before are of 16"
    # Two bytes for each pixel, and of the second tiles one.
    assert made.passes[1].reads.nbytes == 2 * touched(made.plan.pictures[0], (192, 16), 1)
    assert made.passes[2].reads.nbytes == touched(made.plan.pictures[2], (384, 16), 1)


def test_reasons_of_ops_that_remember_or_count() -> None:
    chain = chain_with("sobel", Remembers(), "gamma", "sharpen")
    plan = planned(chain, BGR8, (64, 48))
    made = explain(plan, chain_params(chain))
    assert made.passes[-1].because == "sharpen reads around a pixel, and remembers must see each pixel once"
    (op,) = [op for op in plan.ops if isinstance(op, TemporalOp)]
    states = op.state_bytes(3) * 64 * 48
    assert [one.state_bytes for one in made.passes] == [0, states, 0]
    assert made.held_bytes - states == 2 * plan.pictures[0].nbytes
    chain = chain_with(Remembers())
    assert explain(planned(chain), chain_params(chain)).passes[1].because == (
        "remembers remembers each pixel: it works on tiles"
    )
    chain = chain_with("sobel", Counts())
    _, _, counting, looking = explain(planned(chain), chain_params(chain)).passes
    assert counting.because == "counts needs to know the values of the whole picture"
    assert (counting.writes, counting.read_overhead) == (None, 0)
    assert counting.reads.nbytes == looking.reads.nbytes == 1920 * 1080 * 3
    assert looking.because == "counts needs the statistic of the pass before"


def test_what_a_pass_waits_for_is_said() -> None:
    def waits(text: str) -> list[int]:
        return [one.waits_for_rows for one in explained(text).passes]

    assert waits("sobel") == [0, 17]
    assert waits("gaussian_blur(ksize=5) | sharpen") == [0, 19]
    assert waits("flip | sobel") == [0, 1080]
    assert waits("auto_contrast") == [0, 16, 1080]
    assert waits("canny | sobel") == [0, 18, 1080, 1080]
    assert waits("auto_contrast(statistic='previous') | sobel") == [0, 16, 17]
    made = explained("auto_contrast(statistic='previous')")
    assert made.passes[2].because == "auto_contrast needs the statistic of the pass before, of the frame before"
    assert [one.waits_for_rows for one in explained("sobel", BGR8, (641, 9)).passes] == [0, 9, 9]


def test_a_mask_of_what_hangs_together_is_marked_joined_and_read() -> None:
    marks, joins, made = explained("canny | dilate").passes[1:]
    assert marks.because == "canny marks what may belong to its mask"
    assert joins.because == "canny joins what hangs together anywhere in the picture"
    assert made.because == "canny needs to know what all the marks hang together with"
    labels = 4 * 1920 * 1080
    assert (marks.reads.place, marks.reads.nbytes) == ("device memory", (1920 + 4 * 15) * (1080 + 4 * 68) * 3)
    assert marks.tile_px == (128, 16)
    traffic = [marks.writes, joins.reads, joins.writes, made.reads]
    assert [(t.place, t.nbytes) for t in traffic if t is not None] == [("labels", labels)] * 4
    whole = explained("canny | dilate")
    assert whole.held_bytes == labels + whole.plan.pictures[0].nbytes
    assert whole.device_bytes == 4 * labels + marks.reads.nbytes + 1920 * 1080 * 3


def test_a_pass_that_converts_the_result() -> None:
    made = explain(planned(Chain(), BGR8, target=NV12), ())
    assert made.passes[-1].because == "the result is NV12, made from BGR8 tile by tile"
    assert made.link_bytes_out == 1920 * 1080 * 3 // 2


def test_a_slot_that_is_read_in_place_is_read_with_its_halo() -> None:
    chain = parse_chain("gaussian_blur(ksize=5)")
    made = explain(reads_in_place(planned(chain)), chain_params(chain))
    (tiles,) = made.passes
    assert tiles.because == "the slot lies in the GPU's own memory and is read where it lies"
    assert made.link_bytes_in == tiles.reads.nbytes == (1920 + 4 * 15) * (1080 + 4 * 68) * 3
    assert (made.device_bytes, made.held_bytes) == (0, 0)
    chain = parse_chain("flip")
    assert explain(reads_in_place(planned(chain)), chain_params(chain)).link_bytes_in == 1920 * 1080 * 3


def test_a_plan_with_a_pass_an_op_says_so() -> None:
    chain = parse_chain("invert | sobel | flip")
    made = explain(unfused(planned(chain)), chain_params(chain), fused=False)
    assert reasons(made)[1:] == ["a pass for each operation"] * 2 + ["flip gathers: it may read any row of its picture"]
