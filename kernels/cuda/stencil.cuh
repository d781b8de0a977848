// Stencils on a tile in shared memory: separable integer taps, or a function of the values around a pixel.
//
// Pictures are interleaved, so a neighbour dx pixels away is CHANNELS * dx bytes away and a row is any run of bytes. A
// thread takes QUAD_ROWS rows of four bytes. RADIUS is the window's, 0 where it is known at run time only: the unrolled forms keep
// a window in registers. `halo` is how many pixels around the tile are made.
#pragma once
#include "pinhole/point.cuh"
#include "pinhole/tile.cuh"

constexpr int MAX_RADIUS = 15;

struct Taps {
  uint16 tap[2 * MAX_RADIUS + 2];
};

// Byte `index` of a word, without a shift by a run-time amount where it is constant.
__device__ __forceinline__ uint32 byte_of(uint32 word, int index) { return word >> (8 * index) & 255; }

// Down the columns first: four bytes at once in 16-bit lanes, which hold at most 255 * 256 as the taps' sum is 256. Then along the
// rows, in 32 bits, back to where the picture was.
template <int CHANNELS, int WIDTH, int RADIUS, class Finish, class Post>
__device__ __forceinline__ void separable_tile(const Buffer<CHANNELS, WIDTH>& picture, uint16* sums, int run_time_radius,
                                               int halo, const Taps& taps, Finish finish, Post post) {
  const int radius = RADIUS ? RADIUS : run_time_radius;
  const int count = 2 * radius + 1;
  const int made = up4(halo * CHANNELS), side = made + up4(radius * CHANNELS);  // bytes beside the tile: made, and read
  const int rows = TILE_ROWS + 2 * halo, groups = (rows + QUAD_ROWS - 1) / QUAD_ROWS;
  const int sums_pitch = WIDTH * CHANNELS + 2 * side;
  uint32 kept[RADIUS ? 2 * RADIUS + 1 : 1];
  if constexpr (RADIUS > 0) {
#pragma unroll
    for (int k = 0; k < 2 * RADIUS + 1; ++k) kept[k] = taps.tap[k];
  }
  const auto tap = [&](int k) -> uint32 { return RADIUS ? kept[RADIUS ? k : 0] : taps.tap[k]; };

  const int columns = sums_pitch / 4;
  const Divider by_columns(columns);
  for (int i = threadIdx.x; i < columns * groups; i += THREADS) {
    const int group = by_columns.quotient(i), row = group * QUAD_ROWS, q = by_columns.rest(i, group);
    const uint8* from = picture.data + (row - halo - radius) * picture.pitch - side + 4 * q;
    uint32 even[QUAD_ROWS] = {}, odd[QUAD_ROWS] = {};
#pragma unroll
    for (int k = 0; k < count + QUAD_ROWS - 1; ++k) {
      const uint32 four = *reinterpret_cast<const uint32*>(from + k * picture.pitch);
#pragma unroll
      for (int j = 0; j < QUAD_ROWS; ++j) {
        if (k - j < 0 || k - j >= count) continue;
        even[j] += (four & 0x00ff00ffu) * tap(k - j);
        odd[j] += (four >> 8 & 0x00ff00ffu) * tap(k - j);
      }
    }
#pragma unroll
    for (int j = 0; j < QUAD_ROWS; ++j)
      *reinterpret_cast<uint2*>(sums + (row + j) * sums_pitch + 4 * q) =
          make_uint2(__byte_perm(even[j], odd[j], 0x5410), __byte_perm(even[j], odd[j], 0x7632));
  }
  __syncthreads();

  const int quads = (WIDTH * CHANNELS + 2 * made) / 4;
  const Divider by_quads(quads);
  for (int i = threadIdx.x; i < rows * quads; i += THREADS) {
    const int row = by_quads.quotient(i), q = by_quads.rest(i, row);
    const uint16* from = sums + row * sums_pitch + 4 * q;
    uint32 sum[4] = {};
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
        for (int j = 0; j < 4; ++j) sum[j] += value[FIRST + j + k * CHANNELS] * kept[k];
    } else {
      from += up4(radius * CHANNELS) - radius * CHANNELS;
      for (int k = 0; k < count; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] += from[j + k * CHANNELS] * tap(k);
    }
    uint32* four = reinterpret_cast<uint32*>(picture.data + (row - halo) * picture.pitch - made + 4 * q);
    *four = post(finish(sum, *four));
  }
  __syncthreads();
}

// What becomes of four sums: of taps with sum 256, the mean, rounded half up,
struct Mean {
  __device__ __forceinline__ uint32 operator()(const uint32* sum, uint32) const {
    constexpr uint32 HALF = 1 << 15;
    return __byte_perm(__byte_perm(sum[0] + HALF, sum[1] + HALF, 0x62), __byte_perm(sum[2] + HALF, sum[3] + HALF, 0x62),
                       0x5410);
  }
};

// or what an op makes of each with the value in the window's middle.
template <class Params, class Function>
struct Finish {
  const Params& params;
  Function function;
  __device__ __forceinline__ uint32 operator()(const uint32* sum, uint32 centres) const {
    uint32 four = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) four |= saturate8(function(sum[k], (int)byte_of(centres, k), params)) << (8 * k);
    return four;
  }
};

template <class Params, class Function>
__device__ __forceinline__ Finish<Params, Function> finish_with(const Params& params, Function function) {
  return {params, function};
}

template <int CHANNELS, int WIDTH, class Finish, class Post>
__device__ __forceinline__ void separable(const Buffer<CHANNELS, WIDTH>& picture, uint8* sums, int radius, int halo,
                                          const Taps& taps, Finish finish, Post post) {
  uint16* wide = reinterpret_cast<uint16*>(sums);
  switch (radius) {
    case 1: return separable_tile<CHANNELS, WIDTH, 1>(picture, wide, radius, halo, taps, finish, post);
    case 2: return separable_tile<CHANNELS, WIDTH, 2>(picture, wide, radius, halo, taps, finish, post);
    default: return separable_tile<CHANNELS, WIDTH, 0>(picture, wide, radius, halo, taps, finish, post);
  }
}

struct Least {
  __device__ __forceinline__ uint32 operator()(uint32 a, uint32 b) const { return __vminu4(a, b); }
};

struct Greatest {
  __device__ __forceinline__ uint32 operator()(uint32 a, uint32 b) const { return __vmaxu4(a, b); }
};

// The four bytes from any byte of shared memory on.
__device__ __forceinline__ uint32 four_at(const uint8* address) {
  const uint32 shift = (uint32)(uint64)address & 3;
  const uint32* words = reinterpret_cast<const uint32*>(address - shift);
  return __funnelshift_r(words[0], words[shift ? 1 : 0], 8 * shift);
}

// The extremum over a square window, four values at once: down the columns into `spare`, along the rows back.
template <int CHANNELS, int WIDTH, class Extremum, class Post>
__device__ __forceinline__ void morphology(const Buffer<CHANNELS, WIDTH>& picture, uint8* spare, int radius, int halo,
                                           Extremum extremum, Post post) {
  const int made = up4(halo * CHANNELS), side = made + up4(radius * CHANNELS);
  const int rows = TILE_ROWS + 2 * halo, pitch = WIDTH * CHANNELS + 2 * side, columns = pitch / 4;
  const Divider by_columns(columns);
  for (int i = threadIdx.x; i < columns * rows; i += THREADS) {
    const int row = by_columns.quotient(i), q = by_columns.rest(i, row);
    const uint8* from = picture.data + (row - halo - radius) * picture.pitch - side + 4 * q;
    uint32 four = *reinterpret_cast<const uint32*>(from);
    for (int k = 1; k <= 2 * radius; ++k)
      four = extremum(four, *reinterpret_cast<const uint32*>(from + k * picture.pitch));
    *reinterpret_cast<uint32*>(spare + row * pitch + 4 * q) = four;
  }
  __syncthreads();
  const int quads = (WIDTH * CHANNELS + 2 * made) / 4;
  const Divider by_quads(quads);
  for (int i = threadIdx.x; i < rows * quads; i += THREADS) {
    const int row = by_quads.quotient(i), q = by_quads.rest(i, row);
    const uint8* from = spare + row * pitch + (side - made) - radius * CHANNELS + 4 * q;
    uint32 four = four_at(from);
    for (int k = 1; k <= 2 * radius; ++k) four = extremum(four, four_at(from + k * CHANNELS));
    *reinterpret_cast<uint32*>(picture.data + (row - halo) * picture.pitch - made + 4 * q) = post(four);
  }
  __syncthreads();
}

// What a window function reads: the value of the same channel dx pixels to the right and dy below. From shared memory:
template <int CHANNELS>
struct SharedWindow {
  typedef int Sum;
  static constexpr int LEVEL = 1;
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
  typedef int Sum;
  static constexpr int LEVEL = 1;
  const Patch<CHANNELS, RADIUS>& patch;
  int row, byte;
  __device__ __forceinline__ int operator()(int dx, int dy) const {
    return patch.value[RADIUS + row + dy][Patch<CHANNELS, RADIUS>::SIDE + byte + dx * CHANNELS];
  }
};

template <int CHANNELS, int WIDTH, int RADIUS, class Params, class Function, class Post>
__device__ __forceinline__ void window(const Buffer<CHANNELS, WIDTH>& in, const Buffer<CHANNELS, WIDTH>& out, int halo,
                                       const Params& params, Function function, Post post) {
  const int made = up4(halo * CHANNELS);
  const int quads = (WIDTH * CHANNELS + 2 * made) / 4;
  const int groups = (TILE_ROWS + 2 * halo + QUAD_ROWS - 1) / QUAD_ROWS;
  const Divider by_quads(quads);
  for (int i = threadIdx.x; i < groups * quads; i += THREADS) {
    const int group = by_quads.quotient(i);
    const int first = group * QUAD_ROWS - halo, column = by_quads.rest(i, group) * 4 - made;
    const uint8* from = in.data + first * in.pitch + column;
    Patch<CHANNELS, RADIUS> patch;
    if constexpr (RADIUS > 0) {
      constexpr int SIDE = Patch<CHANNELS, RADIUS>::SIDE;
#pragma unroll
      for (int r = 0; r < QUAD_ROWS + 2 * RADIUS; ++r)
#pragma unroll
        for (int w = 0; w < 1 + SIDE / 2; ++w) {
          const uint32 four = *reinterpret_cast<const uint32*>(from + (r - RADIUS) * in.pitch - SIDE + 4 * w);
#pragma unroll
          for (int k = 0; k < 4; ++k) patch.value[r][4 * w + k] = byte_of(four, k);
        }
    }
#pragma unroll
    for (int r = 0; r < QUAD_ROWS; ++r) {
      uint32 four = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        int value;
        if constexpr (RADIUS > 0)
          value = function(PatchWindow<CHANNELS, RADIUS>{patch, r, k}, params);
        else
          value = function(SharedWindow<CHANNELS>{from + r * in.pitch + k, in.pitch}, params);
        four |= saturate8(value) << (8 * k);
      }
      *reinterpret_cast<uint32*>(out.data + (first + r) * out.pitch + column) = post(four);
    }
  }
  __syncthreads();
}

// The same table for each value of the tile, where nothing else passes over it.
template <int CHANNELS, int WIDTH>
__device__ __forceinline__ void look_up(const Buffer<CHANNELS, WIDTH>& picture, int halo, const uint8* table) {
  const int side = up4(halo * CHANNELS), quads = (WIDTH * CHANNELS + 2 * side) / 4;
  const Divider by_quads(quads);
  for (int i = threadIdx.x; i < (TILE_ROWS + 2 * halo) * quads; i += THREADS) {
    const int row = by_quads.quotient(i);
    uint32* four =
        reinterpret_cast<uint32*>(picture.data + (row - halo) * picture.pitch + by_quads.rest(i, row) * 4 - side);
    *four = lookup4(table, *four);
  }
  __syncthreads();
}
