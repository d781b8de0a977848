// The value at a point between pixels: warps, turns by any angle, undistortion. The definitions are in sampling.py.
#pragma once
#include "pinhole/pixel.cuh"

typedef long long int64;

enum Interpolation { SAMPLE_NEAREST, SAMPLE_LINEAR };
enum Border { BORDER_CONSTANT, BORDER_REPLICATE, BORDER_REFLECT_101 };

constexpr int POINT_BITS = 5;         // points are in 1/32 px
constexpr int FARTHEST = 1 << 25;     // 2^20 px
constexpr int PLACE_BITS = 32;        // of numbers that lead to a point

struct Sampling {
  int interpolation, border;
  uint8 fill[4];  // blue, green, red; grey
  uint16 fill_16[4];
  __device__ __forceinline__ const uint8* filled(uint8) const { return fill; }
  __device__ __forceinline__ const uint16* filled(uint16) const { return fill_16; }
};

// To 1/32 px, rounded half up, from a place in 1/2^bits px.
__device__ __forceinline__ int point_of(int64 place, int bits) {
  const int64 rounded = (place + (1LL << (bits - POINT_BITS - 1))) >> (bits - POINT_BITS);
  return (int)min(max(rounded, (int64)-FARTHEST), (int64)FARTHEST);
}

// numerator / denominator px, to 1/32 px, rounded half up; both below 2^56. As far as can be where that is no number.
__device__ __forceinline__ int point_of_ratio(int64 numerator, int64 denominator) {
  if (denominator == 0) return -FARTHEST;
  if (denominator < 0) numerator = -numerator, denominator = -denominator;
  const int64 twice = 64 * numerator + denominator, by = 2 * denominator;
  int64 quotient = twice / by;
  if (quotient * by > twice) --quotient;
  return (int)min(max(quotient, (int64)-FARTHEST), (int64)FARTHEST);
}

// Where a pixel's values lie; a place outside goes to what the border says.
template <int CHANNELS, class Value>
__device__ __forceinline__ const Value* sample_at(const Picture<CHANNELS, Value>& in, int x, int y, const Sampling& s) {
  const Size size = in.size;
  if (s.border == BORDER_REFLECT_101) {
    x = reflect101(x, size.width);
    y = reflect101(y, size.height);
  } else if (s.border == BORDER_REPLICATE) {
    x = min(max(x, 0), size.width - 1);
    y = min(max(y, 0), size.height - 1);
  } else if (x < 0 || y < 0 || x >= size.width || y >= size.height) {
    return s.filled(Value()) + (CHANNELS == 1 ? 3 : 0);
  }
  return in.at(x, y);
}

// The channels at a point in 1/32 px, where (0, 0) is the centre of the first pixel.
template <int CHANNELS, class Value>
__device__ __forceinline__ void sample(const Picture<CHANNELS, Value>& in, int x, int y, const Sampling& s, Value* out) {
  constexpr int ONE = 1 << POINT_BITS;
  if (s.interpolation == SAMPLE_NEAREST) {
    const Value* from = sample_at(in, (x + ONE / 2) >> POINT_BITS, (y + ONE / 2) >> POINT_BITS, s);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) out[c] = from[c];
    return;
  }
  const int column = x >> POINT_BITS, row = y >> POINT_BITS;
  const int right = x & (ONE - 1), below = y & (ONE - 1);
  const Value* taps[4];
  if (column >= 0 && row >= 0 && column < in.size.width - 1 && row < in.size.height - 1) {
    taps[0] = in.at(column, row);
    taps[1] = taps[0] + CHANNELS;
    taps[2] = in.at(column, row + 1);
    taps[3] = taps[2] + CHANNELS;
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) taps[k] = sample_at(in, column + k % 2, row + k / 2, s);
  }
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    const int upper = taps[0][c] * (ONE - right) + taps[1][c] * right;
    const int lower = taps[2][c] * (ONE - right) + taps[3][c] * right;
    out[c] = (upper * (ONE - below) + lower * below + ONE * ONE / 2) >> (2 * POINT_BITS);
  }
}
