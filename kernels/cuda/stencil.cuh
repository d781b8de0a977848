// Stencils: a tile with its halo in shared memory, border reflect-101, then separable integer taps or a window function.
//
// Pictures are interleaved, so a neighbour dx pixels away is CHANNELS * dx bytes away and a tile can be any run of
// bytes. Tiles are TILE_BYTES wide and STENCIL_ROWS high; the halo's width is rounded up to whole words.
#pragma once
#include "pinhole/common.cuh"

constexpr int STENCIL_BYTES = 256;
constexpr int STENCIL_ROWS = 16;
constexpr int STENCIL_THREADS = 256;
constexpr int MAX_RADIUS = 15;

struct Taps {
  uint16 tap[2 * MAX_RADIUS + 2];
};

template <class Params>
struct StencilArgs {
  const uint8* src;
  uint8* dst;
  int stride;
  int width, height;
  int radius;
  Params params;
};

extern __shared__ __align__(16) uint8 stencil_shared[];

template <int CHANNELS>
__device__ __forceinline__ int halo_bytes(int radius) {
  return (radius * CHANNELS + WORD - 1) / WORD * WORD;
}

// Loads the tile at byte column x0 and row y0 with `radius` rows and halo_bytes() bytes around it; rows lie `pitch` bytes apart.
template <int CHANNELS>
__device__ __forceinline__ void load_tile(const uint8* src, int stride, int width, int height, int x0, int y0,
                                          int radius, int halo, int pitch, uint8* tile) {
  const int row_bytes = width * CHANNELS;
  const int words = pitch / WORD, rows = STENCIL_ROWS + 2 * radius;
  for (int i = threadIdx.x; i < words * rows; i += STENCIL_THREADS) {
    const int r = i / words, byte = (i - r * words) * WORD;
    const uint8* row = src + (long long)reflect101(y0 + r - radius, height) * stride;
    const int first = x0 - halo + byte;
    if (first >= row_bytes + radius * CHANNELS) continue;  // right of every window that is kept
    uint8* to = tile + r * pitch + byte;
    if (first >= 0 && first + WORD <= row_bytes) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(row + first);
    } else {
      for (int k = 0; k < WORD; ++k) {
        const int column = first + k;
        const int pixel = column >= 0 ? column / CHANNELS : -((CHANNELS - 1 - column) / CHANNELS);
        to[k] = row[reflect101(pixel, width) * CHANNELS + column - pixel * CHANNELS];
      }
    }
  }
  __syncthreads();
}

// Sum of taps[k] * byte(k * CHANNELS) for the four bytes at `at`, as two words of two 16-bit lanes: bytes 0 and 2, bytes 1 and 3.
// A lane holds at most 255 * 256, the taps' sum being 256.
template <int CHANNELS>
__device__ __forceinline__ uint2 horizontal4(const uint8* at, const uint16* taps, int count) {
  uint2 sum = make_uint2(0, 0);
#pragma unroll
  for (int k = 0; k < count; ++k) {
    const uint8* from = at + k * CHANNELS;
    const int shift = (int)((uint64)from & 3);
    const uint32* aligned = reinterpret_cast<const uint32*>(from - shift);
    const uint32 four = __funnelshift_r(aligned[0], aligned[1], 8 * shift);
    const uint32 tap = taps[k];
    sum.x += (four & 0x00ff00ffu) * tap;
    sum.y += (four >> 8 & 0x00ff00ffu) * tap;
  }
  return sum;
}

// RADIUS 0 means: known at run time only.
template <int CHANNELS, int RADIUS>
__device__ __forceinline__ void separable_tile(const StencilArgs<Taps>& a) {
  const int radius = RADIUS ? RADIUS : a.radius;
  const int count = 2 * radius + 1;
  const int halo = halo_bytes<CHANNELS>(radius);
  const int pitch = STENCIL_BYTES + 2 * halo;
  const int x0 = blockIdx.x * STENCIL_BYTES, y0 = blockIdx.y * STENCIL_ROWS;
  uint8* tile = stencil_shared;
  const int rows = STENCIL_ROWS + 2 * radius;
  // One word more than the tile: the last funnel shift of the last row may read past it.
  uint2* sums = reinterpret_cast<uint2*>(stencil_shared + rows * pitch + WORD);
  load_tile<CHANNELS>(a.src, a.stride, a.width, a.height, x0, y0, radius, halo, pitch, tile);

  constexpr int QUADS = STENCIL_BYTES / 4;
  for (int i = threadIdx.x; i < rows * QUADS; i += STENCIL_THREADS) {
    const int r = i / QUADS, q = i % QUADS;
    sums[i] = horizontal4<CHANNELS>(tile + r * pitch + halo + 4 * q - radius * CHANNELS, a.params.tap, count);
  }
  __syncthreads();

  for (int i = threadIdx.x; i < STENCIL_ROWS * QUADS; i += STENCIL_THREADS) {
    const int r = i / QUADS, q = i % QUADS;
    const int column = x0 + 4 * q;
    if (y0 + r >= a.height || column >= a.stride) continue;
    uint32 s0 = 1 << 15, s1 = 1 << 15, s2 = 1 << 15, s3 = 1 << 15;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const uint2 lanes = sums[(r + k) * QUADS + q];
      const uint32 tap = a.params.tap[k];
      s0 += (lanes.x & 0xffff) * tap, s2 += (lanes.x >> 16) * tap;
      s1 += (lanes.y & 0xffff) * tap, s3 += (lanes.y >> 16) * tap;
    }
    *reinterpret_cast<uint32*>(a.dst + (long long)(y0 + r) * a.stride + column) =
        s0 >> 16 | (s1 >> 16) << 8 | (s2 >> 16) << 16 | (s3 >> 16) << 24;
  }
}

template <int CHANNELS>
__device__ __forceinline__ void separable_op(const StencilArgs<Taps>& a) {
  switch (a.radius) {
    case 1: return separable_tile<CHANNELS, 1>(a);
    case 2: return separable_tile<CHANNELS, 2>(a);
    case 3: return separable_tile<CHANNELS, 3>(a);
    default: return separable_tile<CHANNELS, 0>(a);
  }
}

// What a window function reads: the value of the same channel dx pixels to the right and dy below.
template <int CHANNELS>
struct Window {
  const uint8* centre;
  int pitch;
  __device__ __forceinline__ int operator()(int dx, int dy) const { return centre[dy * pitch + dx * CHANNELS]; }
};

template <int CHANNELS, class Params, class Function>
__device__ __forceinline__ void window_op(const StencilArgs<Params>& a, Function function) {
  const int halo = halo_bytes<CHANNELS>(a.radius);
  const int pitch = STENCIL_BYTES + 2 * halo;
  const int x0 = blockIdx.x * STENCIL_BYTES, y0 = blockIdx.y * STENCIL_ROWS;
  load_tile<CHANNELS>(a.src, a.stride, a.width, a.height, x0, y0, a.radius, halo, pitch, stencil_shared);
  constexpr int QUADS = STENCIL_BYTES / 4;
  for (int i = threadIdx.x; i < STENCIL_ROWS * QUADS; i += STENCIL_THREADS) {
    const int r = i / QUADS, q = i % QUADS;
    const int column = x0 + 4 * q;
    if (y0 + r >= a.height || column >= a.stride) continue;
    const uint8* centre = stencil_shared + (r + a.radius) * pitch + halo + 4 * q;
    uint32 four = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      four |= saturate8(function(Window<CHANNELS>{centre + k, pitch}, a.params)) << (8 * k);
    *reinterpret_cast<uint32*>(a.dst + (long long)(y0 + r) * a.stride + column) = four;
  }
}
