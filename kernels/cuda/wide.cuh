// Tiles of pictures of 16 bits: tables and stencils one value at a time, in sums of 32 bits and, where those do not hold it, 64.
//
// A tile is the Buffer of a picture with twice as many channels of bytes, so loads, borders and stores are those of tile.cuh.
#pragma once
#include "pinhole/stencil.cuh"
#include "pinhole/tile.cuh"

constexpr int WIDE_TABLE_BYTES = 2 * 65536;

// The same tile by its values; the pitch is in values.
template <int CHANNELS, int WIDTH>
struct Values {
  uint16* data;
  int pitch;
  __device__ __forceinline__ Values(const Buffer<2 * CHANNELS, WIDTH>& tile)
      : data(reinterpret_cast<uint16*>(tile.data)), pitch(tile.pitch / 2) {}
  __device__ __forceinline__ Picture<CHANNELS, uint16> picture(const Tile& tile) const {
    return {data - (long long)tile.y0 * pitch - tile.x0 * CHANNELS, pitch, tile.size};
  }
};

// A picture in device memory.
template <int CHANNELS>
__device__ __forceinline__ Picture<CHANNELS, uint16> wide_picture(const uint8* data, int stride, Size size) {
  return {reinterpret_cast<const uint16*>(data), stride / 2, size};
}

// Calls `function(row, column)` for each value of a tile and `halo` pixels around it; columns are in values.
template <int CHANNELS, int WIDTH, class Function>
__device__ __forceinline__ void for_each_value(int halo, Function function) {
  const int columns = (WIDTH + 2 * halo) * CHANNELS;
  const Divider by_columns(columns);
  for (int i = threadIdx.x; i < (TILE_ROWS + 2 * halo) * columns; i += THREADS) {
    const int row = by_columns.quotient(i);
    function(row - halo, by_columns.rest(i, row) - halo * CHANNELS);
  }
}

// One table for each value; `Out` is uint8 where the table leads from 16 bits to 8. `from` and `to` may be the same.
template <int CHANNELS, int WIDTH, class Out>
__device__ __forceinline__ void look_up_wide(const Values<CHANNELS, WIDTH>& from, Out* to, int pitch, int halo,
                                             const uint16* table) {
  for_each_value<CHANNELS, WIDTH>(halo, [&](int row, int column) {
    to[row * pitch + column] = (Out)__ldg(table + from.data[row * from.pitch + column]);
  });
  __syncthreads();
}

// To 8 bits: value / 257, rounded.
template <int CHANNELS, int WIDTH>
__device__ __forceinline__ void narrow(const Values<CHANNELS, WIDTH>& from, const Buffer<CHANNELS, WIDTH>& to) {
  for_each_value<CHANNELS, WIDTH>(0, [&](int row, int column) {
    to.data[row * to.pitch + column] = (uint8)((from.data[row * from.pitch + column] + 128) / 257);
  });
  __syncthreads();
}

// The same table for each value of an ingest's rows.
template <int CHANNELS, class Out>
__device__ __forceinline__ void look_up_rows_wide(const uint16* from, Out* to, const uint16* table) {
  for (int i = threadIdx.x; i < SEGMENT_ROWS * WIDE_SEGMENT_PX * CHANNELS; i += THREADS) to[i] = (Out)__ldg(table + from[i]);
  __syncthreads();
}

// As in stencil.cuh; what becomes of a sum and the value in its window's middle is `finish`.
template <int CHANNELS, int WIDTH, class Finish>
__device__ __forceinline__ void separable_wide(const Values<CHANNELS, WIDTH>& picture, uint8* memory, int radius,
                                               int halo, const Taps& taps, Finish finish) {
  uint32* sums = reinterpret_cast<uint32*>(memory);
  const int rows = TILE_ROWS + 2 * halo, columns = (WIDTH + 2 * (halo + radius)) * CHANNELS;
  const Divider by_columns(columns);
  for (int i = threadIdx.x; i < rows * columns; i += THREADS) {
    const int row = by_columns.quotient(i), column = by_columns.rest(i, row);
    const uint16* from =
        picture.data + (row - halo - radius) * picture.pitch - (halo + radius) * CHANNELS + column;
    uint32 sum = 0;  // below 2^24, as the taps' sum is at most 256
    for (int k = 0; k <= 2 * radius; ++k) sum += (uint32)from[k * picture.pitch] * taps.tap[k];
    sums[i] = sum;
  }
  __syncthreads();
  for_each_value<CHANNELS, WIDTH>(halo, [&](int row, int column) {
    const uint32* from = sums + (row + halo) * columns + column + halo * CHANNELS;
    uint32 sum = 0;  // at most 65535 * 2^16
    for (int k = 0; k <= 2 * radius; ++k) sum += from[k * CHANNELS] * taps.tap[k];
    uint16* centre = picture.data + row * picture.pitch + column;
    *centre = (uint16)saturate<uint16>(finish(sum, *centre));
  });
  __syncthreads();
}

// Of taps with sum 256, the mean, rounded half up.
struct WideMean {
  __device__ __forceinline__ int operator()(uint32 sum, int) const { return (int)((sum + (1 << 15)) >> 16); }
};

struct WideLeast {
  __device__ __forceinline__ uint16 operator()(uint16 a, uint16 b) const { return a < b ? a : b; }
};

struct WideGreatest {
  __device__ __forceinline__ uint16 operator()(uint16 a, uint16 b) const { return a > b ? a : b; }
};

// The extremum over a square window: down the columns into `memory`, along the rows back.
template <int CHANNELS, int WIDTH, class Extremum>
__device__ __forceinline__ void morphology_wide(const Values<CHANNELS, WIDTH>& picture, uint8* memory, int radius,
                                                int halo, Extremum extremum) {
  uint16* spare = reinterpret_cast<uint16*>(memory);
  const int rows = TILE_ROWS + 2 * halo, columns = (WIDTH + 2 * (halo + radius)) * CHANNELS;
  const Divider by_columns(columns);
  for (int i = threadIdx.x; i < rows * columns; i += THREADS) {
    const int row = by_columns.quotient(i), column = by_columns.rest(i, row);
    const uint16* from =
        picture.data + (row - halo - radius) * picture.pitch - (halo + radius) * CHANNELS + column;
    uint16 value = *from;
    for (int k = 1; k <= 2 * radius; ++k) value = extremum(value, from[k * picture.pitch]);
    spare[i] = value;
  }
  __syncthreads();
  for_each_value<CHANNELS, WIDTH>(halo, [&](int row, int column) {
    const uint16* from = spare + (row + halo) * columns + column + halo * CHANNELS;
    uint16 value = *from;
    for (int k = 1; k <= 2 * radius; ++k) value = extremum(value, from[k * CHANNELS]);
    picture.data[row * picture.pitch + column] = value;
  });
  __syncthreads();
}

template <int CHANNELS>
struct WideWindow {
  typedef long long Sum;
  static constexpr int LEVEL = Depth<uint16>::LEVEL;
  const uint16* centre;
  int pitch;
  __device__ __forceinline__ int operator()(int dx, int dy) const { return centre[dy * pitch + dx * CHANNELS]; }
};

template <int CHANNELS, int WIDTH, class Params, class Function>
__device__ __forceinline__ void window_wide(const Values<CHANNELS, WIDTH>& in, const Values<CHANNELS, WIDTH>& out,
                                            int halo, const Params& params, Function function) {
  for_each_value<CHANNELS, WIDTH>(halo, [&](int row, int column) {
    const WideWindow<CHANNELS> at{in.data + row * in.pitch + column, in.pitch};
    out.data[row * out.pitch + column] = (uint16)saturate<uint16>(function(at, params));
  });
  __syncthreads();
}
