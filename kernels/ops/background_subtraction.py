from __future__ import annotations

import math
from dataclasses import replace

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels, Shape
from kernels.op import OpParams, Scratch, TemporalOp
from kernels.stencil_cpu import bands

_BAND_PIXELS = 1 << 15  # times 40 bytes of intermediates and model: a band stays in the L2 cache
# Fixed point: weights in 1/2^15, means in 1/256 level, variances in 1/256 level².
_WHOLE = 1 << 15
_BACKGROUND = 29491  # 0.9: these weights together are the background (Zivkovic's 1 − c_f)
_FIRST, _LEAST, _GREATEST = 15 * 256, 4 * 256, 75 * 256  # variances, as cv2.createBackgroundSubtractorMOG2 has them
_SAME = 9  # squared distance, in variances, up to which a value is taken for a component's

Ints = npt.NDArray[np.int32]


class BackgroundSubtractionParams(OpParams):
    learning_rate: float = Field(
        default=0.005, ge=0.0, le=0.25,
        description="Share of the newest frame in the model. What stays turns into background after about 0.1 / "
        "learning_rate frames; 0 learns nothing more.",
        json_schema_extra={"x-unit": "1/frame", "x-step": 0.001},
    )  # fmt: skip
    threshold: float = Field(
        default=4.0, ge=1.0, le=10.0, description="Distance from the background beyond which a pixel is foreground.",
        json_schema_extra={"x-unit": "σ", "x-step": 0.1},
    )  # fmt: skip


class BackgroundSubtraction(TemporalOp[BackgroundSubtractionParams]):
    """Finds what does not belong to the background: a GRAY8 mask, 255 there, else 0; shadows count as foreground.

    Each pixel's luma (as of ``grayscale``) is modelled by up to three Gaussians, heaviest first, in whole numbers. One
    frame: Gaussians are tried in order, up to the first that is less than 3σ from the value: its owner. The pixel is
    background if it is less than ``threshold`` σ from one tried whose forerunners weigh less than 0.9 together.
    With the learning rate α, the weights of all but the owner become w − α·w − α/20, at least 0 (0: gone); the owner
    gets the rest of 1, and its mean and variance go α of the way (variance 4 to 75). Without an owner a Gaussian of
    weight α and variance 15 takes the lightest one's place, and the heaviest gets the rest. The first frame is the
    background.

    Rounding: α in 1/2^15 to the nearest, α/20 too (at least one), α·w down; squared distances down and steps of mean
    and variance away from 0, in 1/256. The same integers on CPU and GPU: exact. Sources: Stauffer and Grimson,
    "Adaptive background mixture models for real-time tracking", CVPR 1999; Zivkovic, "Improved adaptive Gaussian
    mixture model for background subtraction", ICPR 2004 (how Gaussians come and go).
    """

    name = "background_subtraction"
    Params = BackgroundSubtractionParams
    cuda_source = """
struct background_subtraction_params {
  int rate, prune;  // in 1/2^15
  int threshold;  // squared, in 1/16 of the variance
};

// In 1/256 level and level squared. The heaviest Gaussian weighs what the two others leave of 2^15.
template <int CHANNELS>
struct alignas(16) background_subtraction_state {
  uint16 mean[3], variance[3], weight[2];
};

__device__ __forceinline__ int background_step(int rate, int way) {
  return (rate * way + (way > 0 ? 32767 : 0)) >> 15;
}

template <int CHANNELS>
__device__ __forceinline__ void background_subtraction(const uint8* in, background_subtraction_state<CHANNELS>& state,
                                                       bool first, int, int, Size,
                                                       const background_subtraction_params& p, uint8* out) {
  int value = in[0];
  if constexpr (CHANNELS == 3) value = (3735 * in[0] + 19235 * in[1] + 9798 * in[2] + (1 << 14)) >> 15;
  value <<= 8;
  if (first) {
    state = {{(uint16)value, 0, 0}, {15 * 256, 0, 0}, {0, 0}};
    out[0] = 0;
    return;
  }
  int mean[3], variance[3], weight[3] = {32768 - state.weight[0] - state.weight[1], state.weight[0], state.weight[1]};
  int owner = 3, before = 0;
  bool background = false;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    mean[i] = state.mean[i];
    variance[i] = state.variance[i];
    if (owner < 3 || weight[i] == 0) continue;
    const int way = value - mean[i];
    const int distance = (uint32)way * (uint32)way >> 8;
    if (before < 29491 && 16 * distance < p.threshold * variance[i]) background = true;
    before += weight[i];
    if (distance >= 9 * variance[i]) continue;
    owner = i;
    mean[i] += background_step(p.rate, way);
    variance[i] = clamp_to(variance[i] + background_step(p.rate, distance - variance[i]), 4 * 256, 75 * 256);
  }
  out[0] = background ? 0 : 255;
  if (p.rate == 0) return;
  int rest = 32768;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    if (i == owner) continue;
    weight[i] = max(weight[i] - (weight[i] * p.rate >> 15) - p.prune, 0);
    if (i == 2 && owner == 3) {
      mean[2] = value;
      variance[2] = 15 * 256;
      weight[2] = p.rate;
    }
    if (i > 0 || owner < 3) rest -= weight[i];
  }
  // The owner takes the rest, or the heaviest. All are written, as an array written at one place leaves the registers.
#pragma unroll
  for (int i = 0; i < 3; ++i) weight[i] = i == owner % 3 ? rest : weight[i];
#pragma unroll
  for (int i = 2; i > 0; --i) {
    if (weight[i] <= weight[i - 1]) continue;
    const int lighter[3] = {mean[i - 1], variance[i - 1], weight[i - 1]};
    mean[i - 1] = mean[i], variance[i - 1] = variance[i], weight[i - 1] = weight[i];
    mean[i] = lighter[0], variance[i] = lighter[1], weight[i] = lighter[2];
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    state.mean[i] = mean[i];
    state.variance[i] = variance[i];
    if (i > 0) state.weight[i - 1] = weight[i];
  }
}
"""

    def output(self, source: Shape, params: BackgroundSubtractionParams) -> Shape:
        return replace(source, channels=1)

    def state_bytes(self, channels: int) -> int:
        return 16

    def constants(self, params: BackgroundSubtractionParams) -> bytes:
        return np.array(_fixed(params), np.int32).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: BackgroundSubtractionParams, scratch: Scratch) -> None:
        height, width = src.shape[:2]
        # Three means, three variances, two weights, as on the device.
        model = scratch.array("model", (8, height, width), np.uint16)
        rows = max(1, min(height, _BAND_PIXELS // width))
        for band, _, _ in bands(height, 0, rows):
            value = src[band]
            if value.ndim == 3:
                value = scratch.array("luma", (rows, width), np.uint8)[: len(value)]
                cv2.cvtColor(src[band], cv2.COLOR_BGR2GRAY, dst=value)
            if scratch.frames == 0:
                model[:, band] = 0
                np.multiply(value, 256, out=model[0, band], dtype=np.uint16)
                model[3, band] = _FIRST
                dst[band] = 0
            else:
                _update(value, model[:, band], dst[band], _fixed(params), scratch)


def _fixed(params: BackgroundSubtractionParams) -> tuple[int, int, int]:
    """Learning rate and what it prunes in 1/2^15, and the squared threshold in 1/16."""
    rate = math.floor(_WHOLE * params.learning_rate + 0.5)
    return rate, max((rate + 10) // 20, min(rate, 1)), math.floor(16 * params.threshold**2 + 0.5)


def _update(
    value: Pixels, model: npt.NDArray[np.uint16], dst: Pixels, fixed: tuple[int, int, int], scratch: Scratch
) -> None:
    """One band. Nearly every pixel's owner is its heaviest Gaussian: all are updated so, the others picked out."""
    rate, _, threshold = fixed
    way, distance, variance, work = (
        scratch.array(name, value.shape, np.int32) for name in ("way", "distance", "variance", "work")
    )
    within = scratch.array("within", value.shape, np.bool_)
    np.multiply(value, 256, out=way, dtype=np.int32)
    np.subtract(way, model[0], out=way)
    _square(way, distance)
    np.copyto(variance, model[3])
    # Background is 0: true, 1, less one.
    np.less(np.multiply(distance, 16, out=work), np.multiply(variance, threshold, out=variance), out=within)
    np.subtract(within.view(np.uint8), 1, out=dst)
    np.multiply(model[3], _SAME, out=variance, dtype=np.int32)
    others = np.flatnonzero(np.greater_equal(distance, variance, out=within))
    flat = model.reshape(8, -1)
    picked = flat[:, others].astype(np.int32)
    if rate:
        np.add(model[0], _step(rate, way, work), out=model[0], casting="unsafe")
        np.copyto(variance, model[3])
        np.subtract(distance, variance, out=distance)
        np.add(variance, _step(rate, distance, work), out=variance)
        np.clip(variance, _LEAST, _GREATEST, out=variance)
        np.copyto(model[3], variance, casting="unsafe")
        for weight in model[6:]:
            if weight.any():
                np.copyto(weight, _lighter(weight.astype(np.int32), fixed), casting="unsafe")
    if len(others):
        row, column = np.divmod(others, value.shape[1])
        background = dst[row, column] == 0
        made = _update_others(value[row, column].astype(np.int32) << 8, picked, background, fixed)
        dst[row, column] = np.where(background, 0, 255)
        if rate:
            flat[:, others] = made


def _update_others(value: Ints, model: Ints, background: npt.NDArray[np.bool_], fixed: tuple[int, int, int]) -> Ints:
    """The new (8, N) model of N pixels that the heaviest Gaussian does not own; sets ``background`` where it is."""
    rate, _, threshold = fixed
    mean, variance = list(model[:3]), list(model[3:6])
    weight = [_WHOLE - model[6] - model[7], model[6], model[7]]
    before = weight[0]
    owners = []
    free = np.ones(len(value), bool)
    for i in (1, 2):
        way = value - mean[i]
        distance = _square(way, np.empty_like(way))
        tried = free & (weight[i] > 0)
        background |= tried & (before < _BACKGROUND) & (16 * distance < threshold * variance[i])
        own = tried & (distance < _SAME * variance[i])
        mean[i] = np.where(own, mean[i] + _step(rate, way, np.empty_like(way)), mean[i])
        moved = variance[i] + _step(rate, distance - variance[i], np.empty_like(way))
        variance[i] = np.where(own, np.clip(moved, _LEAST, _GREATEST), variance[i])
        before = before + weight[i]
        free &= ~own
        owners.append(own)
    light = [_lighter(one, fixed) for one in weight]
    mean[2], variance[2] = np.where(free, value, mean[2]), np.where(free, _FIRST, variance[2])
    second = np.where(owners[0], _WHOLE - light[0] - light[2], light[1])
    third = np.where(owners[1], _WHOLE - light[0] - light[1], np.where(free, rate, light[2]))
    weight = [_WHOLE - second - third, second, third]
    for i in (2, 1):
        heavier = weight[i] > weight[i - 1]
        for what in (mean, variance, weight):
            what[i - 1], what[i] = (
                np.where(heavier, what[i], what[i - 1]),
                np.where(heavier, what[i - 1], what[i]),
            )
    return np.stack([*mean, *variance, *weight[1:]])


def _square(way: Ints, out: Ints) -> Ints:
    """(way²) >> 8, for which 32 bits suffice without a sign."""
    np.multiply(way.view(np.uint32), way.view(np.uint32), out=out.view(np.uint32))
    np.right_shift(out.view(np.uint32), 8, out=out.view(np.uint32))
    return out


def _step(rate: int, way: Ints, out: Ints) -> Ints:
    """``rate`` of the way, rounded away from 0."""
    np.multiply(way > 0, 32767, out=out, dtype=np.int32)
    np.add(out, way * np.int32(rate), out=out)
    return np.right_shift(out, 15, out=out)


def _lighter(weight: Ints, fixed: tuple[int, int, int]) -> Ints:
    """A weight that is not the owner's, one frame on."""
    rate, prune, _ = fixed
    lighter: Ints = np.maximum(weight - (weight * rate >> 15) - prune, 0)
    return lighter
