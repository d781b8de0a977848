// Stencils: a tile with its halo in shared memory, border reflect-101, then separable integer taps or a window function.
//
// Pictures are interleaved, so a neighbour dx pixels away is CHANNELS * dx bytes away and a tile can be any run of bytes. A
// thread takes QUAD_ROWS rows of four bytes. RADIUS is the window's, 0 where it is known at run time only: the unrolled forms keep
// a window in registers.
#pragma once
#include "pinhole/common.cuh"

constexpr int STENCIL_BYTES = 240;  // with a small window's halo, 256 threads take the tile's columns in one go
constexpr int STENCIL_ROWS = 16;
constexpr int STENCIL_THREADS = 256;
constexpr int QUAD_ROWS = 4;
constexpr int QUADS = STENCIL_BYTES / 4;
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
  int first_row, last_row;  // the band: what is written; what lies around it is read
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

// Byte `index` of a word, without a shift by a run-time amount where it is constant.
__device__ __forceinline__ uint32 byte_of(uint32 word, int index) { return word >> (8 * index) & 255; }

// Down the columns first: four bytes at once in 16-bit lanes, which hold at most 255 * 256 as the taps' sum is 256. Then along the
// rows, in 32 bits.
template <int CHANNELS, int RADIUS>
__device__ __forceinline__ void separable_tile(const StencilArgs<Taps>& a) {
  const int radius = RADIUS ? RADIUS : a.radius;
  const int count = 2 * radius + 1;
  const int halo = halo_bytes<CHANNELS>(radius);
  const int pitch = STENCIL_BYTES + 2 * halo;
  const int side = (radius * CHANNELS + 3) / 4 * 4;  // the halo's part that windows reach, in whole quads
  const int sums_pitch = STENCIL_BYTES + 2 * side;
  const int x0 = blockIdx.x * STENCIL_BYTES, y0 = a.first_row + blockIdx.y * STENCIL_ROWS;
  uint8* tile = stencil_shared;
  uint16* sums = reinterpret_cast<uint16*>(stencil_shared + (STENCIL_ROWS + 2 * radius) * pitch);
  load_tile<CHANNELS>(a.src, a.stride, a.width, a.height, x0, y0, radius, halo, pitch, tile);

  const int columns = sums_pitch / 4;
  for (int i = threadIdx.x; i < columns * (STENCIL_ROWS / QUAD_ROWS); i += STENCIL_THREADS) {
    const int row = i / columns * QUAD_ROWS, q = i % columns;
    const uint8* from = tile + row * pitch + halo - side + 4 * q;
    uint32 even[QUAD_ROWS] = {}, odd[QUAD_ROWS] = {};
#pragma unroll
    for (int k = 0; k < count + QUAD_ROWS - 1; ++k) {
      const uint32 four = *reinterpret_cast<const uint32*>(from + k * pitch);
#pragma unroll
      for (int j = 0; j < QUAD_ROWS; ++j) {
        if (k - j < 0 || k - j >= count) continue;
        const uint32 tap = a.params.tap[k - j];
        even[j] += (four & 0x00ff00ffu) * tap;
        odd[j] += (four >> 8 & 0x00ff00ffu) * tap;
      }
    }
#pragma unroll
    for (int j = 0; j < QUAD_ROWS; ++j)
      *reinterpret_cast<uint2*>(sums + (row + j) * sums_pitch + 4 * q) =
          make_uint2(__byte_perm(even[j], odd[j], 0x5410), __byte_perm(even[j], odd[j], 0x7632));
  }
  __syncthreads();

  for (int i = threadIdx.x; i < STENCIL_ROWS * QUADS; i += STENCIL_THREADS) {
    const int row = i / QUADS, q = i % QUADS, column = x0 + 4 * q;
    if (y0 + row >= a.last_row || column >= a.stride) continue;
    const uint16* from = sums + row * sums_pitch + 4 * q;
    uint32 sum[4] = {1 << 15, 1 << 15, 1 << 15, 1 << 15};
    if constexpr (RADIUS > 0) {
      constexpr int SIDE = (RADIUS * CHANNELS + 3) / 4 * 4, FIRST = SIDE - RADIUS * CHANNELS;
      uint32 value[4 + 2 * SIDE];
#pragma unroll
      for (int k = 0; k < 1 + SIDE / 2; ++k) {
        const uint2 lanes = *reinterpret_cast<const uint2*>(from + 4 * k);
        value[4 * k] = lanes.x & 0xffff, value[4 * k + 1] = lanes.x >> 16;
        value[4 * k + 2] = lanes.y & 0xffff, value[4 * k + 3] = lanes.y >> 16;
      }
#pragma unroll
      for (int k = 0; k < 2 * RADIUS + 1; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] += value[FIRST + j + k * CHANNELS] * a.params.tap[k];
    } else {
      from += side - radius * CHANNELS;
      for (int k = 0; k < count; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] += from[j + k * CHANNELS] * (uint32)a.params.tap[k];
    }
    *reinterpret_cast<uint32*>(a.dst + (long long)(y0 + row) * a.stride + column) =
        __byte_perm(__byte_perm(sum[0], sum[1], 0x62), __byte_perm(sum[2], sum[3], 0x62), 0x5410);
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

// What a window function reads: the value of the same channel dx pixels to the right and dy below. From shared memory:
template <int CHANNELS>
struct SharedWindow {
  const uint8* centre;
  int pitch;
  __device__ __forceinline__ int operator()(int dx, int dy) const { return centre[dy * pitch + dx * CHANNELS]; }
};

// From registers, where dx and dy are constant: rows of the words around a quad, and the byte of it that is the centre.
template <int CHANNELS, int RADIUS>
struct Patch {
  static constexpr int SIDE = (RADIUS * CHANNELS + 3) / 4 * 4;
  int value[QUAD_ROWS + 2 * RADIUS][4 + 2 * SIDE];
};

template <int CHANNELS, int RADIUS>
struct PatchWindow {
  const Patch<CHANNELS, RADIUS>& patch;
  int row, byte;
  __device__ __forceinline__ int operator()(int dx, int dy) const {
    return patch.value[RADIUS + row + dy][Patch<CHANNELS, RADIUS>::SIDE + byte + dx * CHANNELS];
  }
};

template <int CHANNELS, int RADIUS, class Params, class Function>
__device__ __forceinline__ void window_op(const StencilArgs<Params>& a, Function function) {
  const int radius = RADIUS ? RADIUS : a.radius;
  const int halo = halo_bytes<CHANNELS>(radius);
  const int pitch = STENCIL_BYTES + 2 * halo;
  const int x0 = blockIdx.x * STENCIL_BYTES, y0 = a.first_row + blockIdx.y * STENCIL_ROWS;
  load_tile<CHANNELS>(a.src, a.stride, a.width, a.height, x0, y0, radius, halo, pitch, stencil_shared);
  for (int i = threadIdx.x; i < STENCIL_ROWS / QUAD_ROWS * QUADS; i += STENCIL_THREADS) {
    const int first = i / QUADS * QUAD_ROWS, q = i % QUADS, column = x0 + 4 * q;
    if (column >= a.stride) continue;
    const uint8* from = stencil_shared + first * pitch + halo + 4 * q;
    Patch<CHANNELS, RADIUS> patch;
    if constexpr (RADIUS > 0) {
      constexpr int SIDE = Patch<CHANNELS, RADIUS>::SIDE;
#pragma unroll
      for (int r = 0; r < QUAD_ROWS + 2 * RADIUS; ++r)
#pragma unroll
        for (int w = 0; w < 1 + SIDE / 2; ++w) {
          const uint32 four = *reinterpret_cast<const uint32*>(from + r * pitch - SIDE + 4 * w);
#pragma unroll
          for (int k = 0; k < 4; ++k) patch.value[r][4 * w + k] = byte_of(four, k);
        }
    }
#pragma unroll
    for (int r = 0; r < QUAD_ROWS; ++r) {
      if (y0 + first + r >= a.last_row) break;
      uint32 four = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        int value;
        if constexpr (RADIUS > 0)
          value = function(PatchWindow<CHANNELS, RADIUS>{patch, r, k}, a.params);
        else
          value = function(SharedWindow<CHANNELS>{from + (radius + r) * pitch + k, pitch}, a.params);
        four |= saturate8(value) << (8 * k);
      }
      *reinterpret_cast<uint32*>(a.dst + (long long)(y0 + first + r) * a.stride + column) = four;
    }
  }
}
