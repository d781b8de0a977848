// A whole picture in another size, in whole numbers: resize and letterbox. The definitions are in ops/resize.py.
#pragma once
#include "pinhole/pixel.cuh"

enum Resampling { RESAMPLE_NEAREST, RESAMPLE_LINEAR, RESAMPLE_AREA, RESAMPLE_CUBIC };

// Along one axis: the first of two neighbours and the weight of the second, in 1/256.
__device__ __forceinline__ int linear_place(int x, int from, int to, int& second) {
  const int centre = (2 * x + 1) * from - to;  // in 1 / 2 to; below 2^30
  second = 0;
  if (centre < 0) return 0;
  const int first = centre / (2 * to);
  if (first < from - 1) second = ((centre - first * 2 * to) * 256 + to) / (2 * to);
  return first;
}

// Along one axis: the second of four neighbours and the weights of all, in 1/2048.
__device__ __forceinline__ int cubic_place(int x, int from, int to, int (&weights)[4]) {
  const int centre = (2 * x + 1) * from - to + 2 * to;  // one place more, so that it is positive
  const int second = centre / (2 * to);
  const int k = ((centre - second * 2 * to) * 256 + to) / (2 * to);  // in 1/256
  weights[0] = (-3 * k * (256 - k) * (256 - k) + (1 << 14)) >> 15;
  weights[2] = (((3 << 16) + (6 << 8) * k - 5 * k * k) * k + (1 << 14)) >> 15;
  weights[3] = (-3 * k * k * (256 - k) + (1 << 14)) >> 15;
  weights[1] = 2048 - weights[0] - weights[2] - weights[3];
  return second - 1;
}

// Pixel (x, y) of the picture made ``size`` pixels large.
template <int CHANNELS, class Value>
__device__ __forceinline__ void resample(const Picture<CHANNELS, Value>& in, int x, int y, Size size, int interpolation,
                                         Value* out) {
  typedef typename Depth<Value>::Sum Sum;
  if (interpolation == RESAMPLE_NEAREST) {
    const int column = (2 * x + 1) * in.size.width / (2 * size.width);
    const Value* from = in.at(column, (2 * y + 1) * in.size.height / (2 * size.height));
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) out[c] = from[c];
  } else if (interpolation == RESAMPLE_LINEAR) {
    int right, below;
    const int column = linear_place(x, in.size.width, size.width, right);
    const int row = linear_place(y, in.size.height, size.height, below);
    const Value* upper = in.at(column, row);
    const Value* lower = in.at(column, below ? row + 1 : row);
    const int next = right ? CHANNELS : 0;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      const Sum top = upper[c] * (256 - right) + upper[c + next] * right;
      const Sum bottom = lower[c] * (256 - right) + lower[c + next] * right;
      out[c] = (top * (256 - below) + bottom * below + (1 << 15)) >> 16;
    }
  } else if (interpolation == RESAMPLE_CUBIC) {
    int across[4], down[4];
    const int column = cubic_place(x, in.size.width, size.width, across);
    const int row = cubic_place(y, in.size.height, size.height, down);
    Sum sum[CHANNELS] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int along[CHANNELS] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int inside = min(max(column + i - 1, 0), in.size.width - 1);
        const Value* from = in.at(inside, min(max(row + j - 1, 0), in.size.height - 1));
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) along[c] += from[c] * across[i];
      }
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c) sum[c] += (Sum)along[c] * down[j];  // below 2^31: 255·(1.375·2048)^2
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) out[c] = saturate<Value>((sum[c] + (1 << 21)) >> 22);
  } else {
    // In units in which a source pixel is size.width wide and a result pixel in.size.width: whole numbers below 2^28.
    const int left = x * in.size.width, right = left + in.size.width;
    const int top = y * in.size.height, bottom = top + in.size.height;
    uint64 sum[CHANNELS] = {};
    for (int row = top / size.height; row * size.height < bottom; ++row) {
      uint32 across[CHANNELS] = {};
      for (int column = left / size.width; column * size.width < right; ++column) {
        const uint32 covered = min((column + 1) * size.width, right) - max(column * size.width, left);
        const Value* from = in.at(column, row);
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) across[c] += from[c] * covered;
      }
      const uint32 covered = min((row + 1) * size.height, bottom) - max(row * size.height, top);
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c) sum[c] += (uint64)across[c] * covered;
    }
    const uint64 whole = (uint64)in.size.width * in.size.height;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) out[c] = (2 * sum[c] + whole) / (2 * whole);
  }
}
