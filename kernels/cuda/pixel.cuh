// Ops that make whole pixels of the result from anywhere in the picture: other channels, another size, another place.
//
// A thread makes PIXELS pixels side by side, which are whole words of a row. The source is device memory or a tile in shared memory,
// never a slot: what neighbouring threads read lies close by.
#pragma once
#include "pinhole/common.cuh"

constexpr int PIXEL_THREADS = 256;
constexpr int PIXELS = 4;

struct Size {
  int width, height;
};

// The stride is in values.
template <int CHANNELS, class Value = uint8>
struct Picture {
  const Value* data;
  int stride;
  Size size;
  __device__ __forceinline__ const Value* at(int x, int y) const {
    return data + (long long)y * stride + x * CHANNELS;
  }
};

// Makes the pixels from column `left` to `right` and row `top` to `bottom` (not included) of a tile whose pixel (0, 0) lies at `out`
// and is pixel (x0, y0) of a picture of that size; only those inside it, and up to the next multiple of 4 to their right.
// `left` and `right` are such multiples. Every thread of the block takes part and waits for none. `in` and `out` may be the
// same for an op that reads one pixel.
template <int IN, int OUT, class Function>
__device__ __forceinline__ void make_pixels(const Picture<IN>& in, uint8* out, int pitch, int x0, int y0, int left,
                                            int right, int top, int bottom, Size size, Function function) {
  const int across = (right - left + PIXELS - 1) / PIXELS;
  for (int i = threadIdx.x; i < across * (bottom - top); i += PIXEL_THREADS) {
    const int row = top + i / across, column = left + i % across * PIXELS, x = x0 + column, y = y0 + row;
    if (y < 0 || y >= size.height || x + PIXELS <= 0 || x >= size.width) continue;
    uint32 words[OUT] = {};
#pragma unroll
    for (int k = 0; k < PIXELS; ++k) {
      uint8 made[OUT];
      // Beyond the picture's sides it takes the last pixel, so that nothing outside is asked for.
      function(in, min(max(x + k, 0), size.width - 1), y, size, made);
#pragma unroll
      for (int c = 0; c < OUT; ++c) words[(k * OUT + c) / 4] |= (uint32)made[c] << (k * OUT + c) % 4 * 8;
    }
    uint32* to = reinterpret_cast<uint32*>(out + row * pitch + column * OUT);
#pragma unroll
    for (int w = 0; w < OUT; ++w) to[w] = words[w];
  }
}

// The same of 16 bits, one pixel at a time; the pitch is in values.
template <int IN, int OUT, class Function>
__device__ __forceinline__ void make_pixels(const Picture<IN, uint16>& in, uint16* out, int pitch, int x0, int y0,
                                            int left, int right, int top, int bottom, Size size, Function function) {
  const int across = right - left;
  for (int i = threadIdx.x; i < across * (bottom - top); i += PIXEL_THREADS) {
    const int row = top + i / across, column = left + i % across, x = x0 + column, y = y0 + row;
    if (y < 0 || y >= size.height || x < 0 || x >= size.width) continue;
    uint16 made[OUT];
    function(in, x, y, size, made);
#pragma unroll
    for (int c = 0; c < OUT; ++c) out[row * pitch + column * OUT + c] = made[c];
  }
}

// The same for an op that remembers something of each pixel, in `states`, row by row: it meets each pixel of the tile's part of the
// picture once.
template <int IN, int OUT, class Value, class State, class Function>
__device__ __forceinline__ void update_pixels(const Picture<IN, Value>& in, Value* out, int pitch, int x0, int y0,
                                              int width, int height, State* states, Function function) {
  const int columns = min(width, in.size.width - x0), rows = min(height, in.size.height - y0);
  for (int i = threadIdx.x; i < columns * rows; i += PIXEL_THREADS) {
    const int row = i / columns, column = i % columns, x = x0 + column, y = y0 + row;
    State* at = states + (long long)y * in.size.width + x;
    State state = *at;
    Value made[OUT];
    function(in.at(x, y), state, x, y, in.size, made);
    *at = state;
#pragma unroll
    for (int c = 0; c < OUT; ++c) out[row * pitch + column * OUT + c] = made[c];
  }
}
