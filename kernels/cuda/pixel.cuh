// Ops that make whole pixels of the result from anywhere in the picture: other channels, another size, another place.
//
// A thread makes PIXELS pixels side by side, which are whole words of a row. The source is device memory, never a slot: what
// neighbouring threads read lies in the caches.
#pragma once
#include "pinhole/common.cuh"

constexpr int PIXEL_THREADS = 256;
constexpr int PIXEL_COLUMNS = 32;  // threads side by side
constexpr int PIXEL_ROWS = PIXEL_THREADS / PIXEL_COLUMNS;
constexpr int PIXELS = 4;

struct Size {
  int width, height;
};

template <int CHANNELS>
struct Picture {
  const uint8* data;
  int stride;
  Size size;
  __device__ __forceinline__ const uint8* at(int x, int y) const {
    return data + (long long)y * stride + x * CHANNELS;
  }
};

template <class Params>
struct PixelArgs {
  const uint8* src;
  uint8* dst;
  int src_stride, dst_stride;
  Size src_size, dst_size;
  int first_row, last_row;  // of the result: the band
  Params params;
};

template <int IN, int OUT, class Params, class Function>
__device__ __forceinline__ void pixel_op(const PixelArgs<Params>& a, Function function) {
  const int x0 = (blockIdx.x * PIXEL_COLUMNS + threadIdx.x % PIXEL_COLUMNS) * PIXELS;
  const int y = a.first_row + blockIdx.y * PIXEL_ROWS + threadIdx.x / PIXEL_COLUMNS;
  if (x0 >= a.dst_size.width || y >= a.last_row) return;
  const Picture<IN> in{a.src, a.src_stride, a.src_size};
  uint32 words[OUT] = {};
#pragma unroll
  for (int k = 0; k < PIXELS; ++k) {
    uint8 out[OUT];
    // Beyond the last pixel is padding: it takes that pixel, so that nothing outside is asked for.
    function(in, min(x0 + k, a.dst_size.width - 1), y, a.dst_size, a.params, out);
#pragma unroll
    for (int c = 0; c < OUT; ++c) words[(k * OUT + c) / 4] |= (uint32)out[c] << (k * OUT + c) % 4 * 8;
  }
  uint8* row = a.dst + (long long)y * a.dst_stride;
#pragma unroll
  for (int w = 0; w < OUT; ++w)
    if (const int byte = x0 * OUT + 4 * w; byte < a.dst_stride) *reinterpret_cast<uint32*>(row + byte) = words[w];
}
