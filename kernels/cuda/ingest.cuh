// The first pass: reads each byte of a slot once, in whole words, and writes the working picture in device memory.
//
// A block takes 2 rows (one chroma row of 4:2:0) by TILE_PX pixels. Rows may start at any byte: the words that cover a
// segment are staged in shared memory and read from there. A word that holds one byte of the picture lies in
// that byte's page, so the up to 15 bytes read on either side of a segment are always mapped; they are never used.
//
// Few blocks keep the link full, so the grid is small and each block walks over tiles: the multiprocessors have room for the passes
// that compute and write the band before at the same time.
#pragma once
#include "pinhole/common.cuh"

constexpr int TILE_PX = 512;
constexpr int TILE_ROWS = 2;
constexpr int INGEST_THREADS = 256;

struct IngestArgs {
  const uint8* planes[3];
  uint8* dst;
  int strides[3];
  int dst_stride;
  int width, height;
  int first_row;  // of the band, even
  int y_offset, y, bu, gu, gv, rv;  // kernels.formats.YuvCoefficients
};

// One run of source bytes that a block needs: empty where its row is below the picture.
struct Segment {
  const uint8* start;
  int bytes;
};

__device__ __forceinline__ Segment segment(const IngestArgs& a, int plane, int row, int rows, int first_group,
                                           int tile_groups, int groups, int group_bytes) {
  const int count = row < rows ? min(tile_groups, groups - first_group) : 0;
  return {a.planes[plane] + (long long)row * a.strides[plane] + (long long)first_group * group_bytes,
          max(count, 0) * group_bytes};
}

__device__ __forceinline__ int term(int coefficient, int value, int offset) {
  return (coefficient * (value - offset) + 512) >> 10;
}

__device__ __forceinline__ void yuv_to_bgr(const IngestArgs& a, int y, int u, int v, uint8* bgr) {
  const int luma = term(a.y, y, a.y_offset) + 16;
  bgr[0] = saturate8((luma + term(a.bu, u, 128)) >> 5);
  bgr[1] = saturate8((luma + term(a.gu, u, 128) + term(a.gv, v, 128)) >> 5);
  bgr[2] = saturate8((luma + term(a.rv, v, 128)) >> 5);
}

// A format says which segments a tile needs (at most TILE_BYTES each) and how pixel (x, row) is made of them; `at[s]` is the
// first byte of segment s.
struct Bgr8 {
  static constexpr int SEGMENTS = 2, TILE_BYTES = 3 * TILE_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return segment(a, 0, y + s, a.height, x, TILE_PX, a.width, 3);
  }
  __device__ static void pixel(const IngestArgs&, const uint8* const* at, int x, int row, uint8* out) {
    const uint8* in = at[row] + 3 * x;
    out[0] = in[0], out[1] = in[1], out[2] = in[2];
  }
};

struct Rgb8 : Bgr8 {
  __device__ static void pixel(const IngestArgs&, const uint8* const* at, int x, int row, uint8* out) {
    const uint8* in = at[row] + 3 * x;
    out[0] = in[2], out[1] = in[1], out[2] = in[0];
  }
};

struct Gray8 {
  static constexpr int SEGMENTS = 2, TILE_BYTES = TILE_PX, CHANNELS = 1;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return segment(a, 0, y + s, a.height, x, TILE_PX, a.width, 1);
  }
  __device__ static void pixel(const IngestArgs&, const uint8* const* at, int x, int row, uint8* out) {
    out[0] = at[row][x];
  }
};

struct Nv12 {
  static constexpr int SEGMENTS = 3, TILE_BYTES = TILE_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return s < 2 ? segment(a, 0, y + s, a.height, x, TILE_PX, a.width, 1)
                 : segment(a, 1, y / 2, (a.height + 1) / 2, x / 2, TILE_PX / 2, (a.width + 1) / 2, 2);
  }
  __device__ static void pixel(const IngestArgs& a, const uint8* const* at, int x, int row, uint8* out) {
    const uint8* uv = at[2] + (x & ~1);
    yuv_to_bgr(a, at[row][x], uv[0], uv[1], out);
  }
};

struct I420 {
  static constexpr int SEGMENTS = 4, TILE_BYTES = TILE_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return s < 2 ? segment(a, 0, y + s, a.height, x, TILE_PX, a.width, 1)
                 : segment(a, s - 1, y / 2, (a.height + 1) / 2, x / 2, TILE_PX / 2, (a.width + 1) / 2, 1);
  }
  __device__ static void pixel(const IngestArgs& a, const uint8* const* at, int x, int row, uint8* out) {
    yuv_to_bgr(a, at[row][x], at[2][x / 2], at[3][x / 2], out);
  }
};

struct Yuyv {
  static constexpr int SEGMENTS = 2, TILE_BYTES = 2 * TILE_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return segment(a, 0, y + s, a.height, x / 2, TILE_PX / 2, (a.width + 1) / 2, 4);
  }
  __device__ static void pixel(const IngestArgs& a, const uint8* const* at, int x, int row, uint8* out) {
    const uint8* pair = at[row] + 4 * (x / 2);
    yuv_to_bgr(a, pair[2 * (x & 1)], pair[1], pair[3], out);
  }
};

struct Uyvy : Yuyv {
  __device__ static void pixel(const IngestArgs& a, const uint8* const* at, int x, int row, uint8* out) {
    const uint8* pair = at[row] + 4 * (x / 2);
    yuv_to_bgr(a, pair[1 + 2 * (x & 1)], pair[0], pair[2], out);
  }
};

template <class Format>
struct Tile {
  // One more word than aligned: a segment may start inside a word.
  static constexpr int WORDS = Format::TILE_BYTES / WORD + 1;
  static_assert(Format::SEGMENTS * WORDS <= INGEST_THREADS, "a thread loads one word of a tile");

  int x0, y0;

  __device__ __forceinline__ Tile(const IngestArgs& a, int index, int tiles_across)
      : x0(index % tiles_across * TILE_PX), y0(a.first_row + index / tiles_across * TILE_ROWS) {}

  __device__ __forceinline__ uint4 load(const IngestArgs& a) const {
    const int s = threadIdx.x / WORDS, w = threadIdx.x % WORDS;
    if (s < Format::SEGMENTS) {
      const Segment part = Format::part(a, s, x0, y0);
      const int shift = (int)((uint64)part.start & (WORD - 1));
      if (part.bytes > 0 && w * WORD < shift + part.bytes) return load_once(part.start - shift + w * WORD);
    }
    return make_uint4(0, 0, 0, 0);
  }
};

template <class Format>
__device__ __forceinline__ void ingest(const IngestArgs& a) {
  constexpr int WORDS = Tile<Format>::WORDS;
  constexpr int OUT_BYTES = TILE_PX * Format::CHANNELS;
  __shared__ __align__(16) uint8 staged[Format::SEGMENTS][WORDS * WORD];
  __shared__ __align__(16) uint8 out[TILE_ROWS][OUT_BYTES];
  const int tiles_across = (a.width + TILE_PX - 1) / TILE_PX;
  const int tiles = tiles_across * ((a.height - a.first_row + TILE_ROWS - 1) / TILE_ROWS);

  // The next tile's words are on their way while this one is converted.
  uint4 word = Tile<Format>(a, blockIdx.x, tiles_across).load(a);
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile<Format> tile(a, index, tiles_across);
    if (threadIdx.x < Format::SEGMENTS * WORDS) reinterpret_cast<uint4*>(staged)[threadIdx.x] = word;
    __syncthreads();
    if (index + gridDim.x < tiles) word = Tile<Format>(a, index + gridDim.x, tiles_across).load(a);

    const uint8* at[Format::SEGMENTS];
#pragma unroll
    for (int s = 0; s < Format::SEGMENTS; ++s)
      at[s] = staged[s] + (int)((uint64)Format::part(a, s, tile.x0, tile.y0).start & (WORD - 1));
    const int columns = min(TILE_PX, a.width - tile.x0);
#pragma unroll
    for (int row = 0; row < TILE_ROWS; ++row)
      for (int x = threadIdx.x; x < columns; x += INGEST_THREADS)
        if (tile.y0 + row < a.height) Format::pixel(a, at, x, row, &out[row][x * Format::CHANNELS]);
    __syncthreads();

    constexpr int OUT_WORDS = OUT_BYTES / WORD;
    for (int i = threadIdx.x; i < TILE_ROWS * OUT_WORDS; i += INGEST_THREADS) {
      const int row = i / OUT_WORDS, byte = i % OUT_WORDS * WORD;
      const int column = tile.x0 * Format::CHANNELS + byte;
      if (tile.y0 + row < a.height && column < a.dst_stride)
        *reinterpret_cast<uint4*>(a.dst + (long long)(tile.y0 + row) * a.dst_stride + column) =
            *reinterpret_cast<const uint4*>(&out[row][byte]);
    }
  }
}
