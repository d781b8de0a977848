"""Results with planes (GRAY8, I420, NV12) against an oracle in whole numbers, on any device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.chain import parse_chain
from kernels.device import Device
from kernels.formats import GRAY8, I420, NV12, PixelFormat
from kernels.image import ImageSpec, ImageView, Pixels
from kernels.plan import chain_params, make_plan, result_nbytes
from tests.kernels.cases import GUARD_BYTES, STALE, paint_random
from tests.kernels.oracles import oracle_chain

TARGETS = (GRAY8, I420, NV12)
SIZES = ((1, 1), (1, 9), (2, 1), (3, 3), (7, 18), (62, 50), (127, 33), (128, 16), (129, 17), (390, 34), (641, 479))


def oracle_planes(picture: Pixels, target: PixelFormat) -> bytes:
    """The packed planes of a (H, W) or (H, W, 3) picture, by the definition in kernels/formats.py; 16 bits / 257."""
    wide: npt.NDArray[np.int64] = picture.astype(np.int64)
    if picture.dtype == np.uint16:
        wide = (2 * wide + 257) // 514
    if wide.ndim == 2:
        wide = np.stack([wide] * 3, axis=-1)
    blue, green, red = wide[..., 0], wide[..., 1], wide[..., 2]
    luma = (3735 * blue + 19235 * green + 9798 * red + (1 << 14)) >> 15
    height, width = luma.shape
    even = np.pad(wide, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
    b, g, r = np.moveaxis(even.reshape(even.shape[0] // 2, 2, even.shape[1] // 2, 2, 3).sum(axis=(1, 3)), -1, 0)
    middle = (128 << 14) + (1 << 13)
    u = np.clip((2048 * b - 1357 * g - 691 * r + middle) >> 14, 0, 255)
    v = np.clip((2048 * r - 1715 * g - 333 * b + middle) >> 14, 0, 255)
    planes = {GRAY8: [luma], I420: [luma, u, v], NV12: [luma, np.stack([u, v], axis=-1)]}[target]
    return b"".join(plane.astype(np.uint8).tobytes() for plane in planes)


def check_target(device: Device, source: ImageSpec, chain: str, target: PixelFormat) -> None:
    """Run the chain on noise and compare every byte of the result, and that none behind it was written."""
    plan = make_plan(parse_chain(chain), source, target)
    source_memory, result_memory = (
        device.allocate_slot(source.nbytes),
        device.allocate_slot(result_nbytes(plan) + GUARD_BYTES),
    )
    executor = device.make_executor(plan)
    try:
        view = ImageView(source, source_memory.array, source_memory.dev_ptr)
        paint_random(5)(view)
        result_memory.array.fill(STALE)
        result = ImageView(plan.result, result_memory.array, result_memory.dev_ptr)
        executor.submit(view, result, chain_params(parse_chain(chain))).wait()
        expected = oracle_planes(oracle_chain(view, parse_chain(chain)), target)
        assert result_memory.array[: plan.result.nbytes].tobytes() == expected, f"{source.describe()} {chain} {target}"
        assert (result_memory.array[plan.result.nbytes :] == STALE).all(), "written behind the result"
    finally:
        executor.close()
        source_memory.close()
        result_memory.close()
