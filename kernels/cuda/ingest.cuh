// The first pass: reads each byte of a slot once, in whole words, and makes the working picture, through the chain's first point ops.
//
// A block takes 2 rows (one chroma row of 4:2:0) by SEGMENT_PX pixels. Rows may start at any byte: the words that cover a
// segment are staged in shared memory and read from there. A word that holds one byte of the picture lies in
// that byte's page, so the up to 15 bytes read on either side of a segment are always mapped; they are never used.
//
// Few blocks keep the link full, so each walks over many segments and the multiprocessors have room for the passes behind.
#pragma once
#include "pinhole/flow.cuh"
#include "pinhole/pixel.cuh"
#include "pinhole/point.cuh"

constexpr int SEGMENT_PX = 512;
constexpr int WIDE_SEGMENT_PX = 256;  // of 16 bits
constexpr int SEGMENT_ROWS = 2;

struct IngestPass {
  uint8* dst;  // null: the frame's result
  int strides[3];
  int dst_stride;
  int width, height;
  int y_offset, y, bu, gu, gv, rv;  // kernels.formats.YuvCoefficients
  Rows made;
  int workers;  // blocks
};

struct IngestArgs : IngestPass {
  const uint8* planes[3];
  __device__ __forceinline__ IngestArgs(const Frame& f, const IngestPass& pass)
      : IngestPass(pass), planes{f.planes[0], f.planes[1], f.planes[2]} {}
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

// A format says which segments a block needs at once (at most SEGMENT_BYTES each) and how pixel (x, row) is made of them; `at[s]` is the
// first byte of segment s.
struct Bgr8 {
  static constexpr int PX = SEGMENT_PX, SEGMENTS = 2, SEGMENT_BYTES = 3 * SEGMENT_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return segment(a, 0, y + s, a.height, x, SEGMENT_PX, a.width, 3);
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
  static constexpr int PX = SEGMENT_PX, SEGMENTS = 2, SEGMENT_BYTES = SEGMENT_PX, CHANNELS = 1;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return segment(a, 0, y + s, a.height, x, SEGMENT_PX, a.width, 1);
  }
  __device__ static void pixel(const IngestArgs&, const uint8* const* at, int x, int row, uint8* out) {
    out[0] = at[row][x];
  }
};

struct Nv12 {
  static constexpr int PX = SEGMENT_PX, SEGMENTS = 3, SEGMENT_BYTES = SEGMENT_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return s < 2 ? segment(a, 0, y + s, a.height, x, SEGMENT_PX, a.width, 1)
                 : segment(a, 1, y / 2, (a.height + 1) / 2, x / 2, SEGMENT_PX / 2, (a.width + 1) / 2, 2);
  }
  __device__ static void pixel(const IngestArgs& a, const uint8* const* at, int x, int row, uint8* out) {
    const uint8* uv = at[2] + (x & ~1);
    yuv_to_bgr(a, at[row][x], uv[0], uv[1], out);
  }
};

struct I420 {
  static constexpr int PX = SEGMENT_PX, SEGMENTS = 4, SEGMENT_BYTES = SEGMENT_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return s < 2 ? segment(a, 0, y + s, a.height, x, SEGMENT_PX, a.width, 1)
                 : segment(a, s - 1, y / 2, (a.height + 1) / 2, x / 2, SEGMENT_PX / 2, (a.width + 1) / 2, 1);
  }
  __device__ static void pixel(const IngestArgs& a, const uint8* const* at, int x, int row, uint8* out) {
    yuv_to_bgr(a, at[row][x], at[2][x / 2], at[3][x / 2], out);
  }
};

struct Yuyv {
  static constexpr int PX = SEGMENT_PX, SEGMENTS = 2, SEGMENT_BYTES = 2 * SEGMENT_PX, CHANNELS = 3;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return segment(a, 0, y + s, a.height, x / 2, SEGMENT_PX / 2, (a.width + 1) / 2, 4);
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

// Of 16 bits: as so many channels of bytes. Slots start on even addresses.
template <int BYTES>
struct Wide {
  static constexpr int PX = WIDE_SEGMENT_PX, SEGMENTS = 2, SEGMENT_BYTES = BYTES * PX, CHANNELS = BYTES;
  __device__ static Segment part(const IngestArgs& a, int s, int x, int y) {
    return segment(a, 0, y + s, a.height, x, PX, a.width, BYTES);
  }
  __device__ static void pixel(const IngestArgs&, const uint8* const* at, int x, int row, uint8* out) {
#pragma unroll
    for (int b = 0; b < BYTES; b += 2)
      *reinterpret_cast<uint16*>(out + b) = *reinterpret_cast<const uint16*>(at[row] + BYTES * x + b);
  }
};

typedef Wide<2> Gray16;
typedef Wide<6> Bgr16;

template <class Format>
struct Block {
  // One more word than aligned: a segment may start inside a word.
  static constexpr int WORDS = Format::SEGMENT_BYTES / WORD + 1;
  // The last warp reads nothing from the link: it hands rows on (flow.cuh), and its fence then waits for no read.
  static_assert(Format::SEGMENTS * WORDS <= THREADS - 32, "a thread loads one word");

  int x0, y0;

  __device__ __forceinline__ Block(int index, int across)
      : x0(index % across * Format::PX), y0(index / across * SEGMENT_ROWS) {}

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

// `points(picture, spare, x0, y0)` takes SEGMENT_ROWS rows of Format::PX pixels in shared memory through the chain's first ops and
// returns where the outcome lies, OUT bytes a pixel, synchronized. AWAITS: the slot's rows are still arriving; DEPARTS: copies take
// away what is made.
template <class Format, int OUT, bool AWAITS = false, bool DEPARTS = false, class Points>
__device__ __forceinline__ void ingest(const Frame& f, const IngestPass& pass, int worker, uint8* memory, Points points) {
  constexpr int WORDS = Block<Format>::WORDS, PX = Format::PX, PICTURE_BYTES = SEGMENT_ROWS * SEGMENT_PX * 3;
  const IngestArgs a(f, pass);
  uint8* picture = memory;
  uint8* spare = picture + PICTURE_BYTES;
  uint8* staged = spare + PICTURE_BYTES;
  const int across = (a.width + PX - 1) / PX;
  const int blocks = across * ((a.height + SEGMENT_ROWS - 1) / SEGMENT_ROWS);

  const auto load = [&](int index) {
    const Block<Format> block(index, across);
    if constexpr (AWAITS) wait_for_source(f, block.y0, block.y0 + SEGMENT_ROWS, a.height);
    return block.load(a);
  };
  // The next words are on their way while these are converted.
  uint4 word = worker < blocks ? load(worker) : make_uint4(0, 0, 0, 0);
  for (int index = worker; index < blocks; index += a.workers) {
    const Block<Format> block(index, across);
    if (threadIdx.x < Format::SEGMENTS * WORDS) reinterpret_cast<uint4*>(staged)[threadIdx.x] = word;
    __syncthreads();
    if (index + a.workers < blocks) word = load(index + a.workers);

    const uint8* at[Format::SEGMENTS];
#pragma unroll
    for (int s = 0; s < Format::SEGMENTS; ++s)
      at[s] = staged + s * WORDS * WORD + (int)((uint64)Format::part(a, s, block.x0, block.y0).start & (WORD - 1));
    const int columns = min(PX, a.width - block.x0);
#pragma unroll
    for (int row = 0; row < SEGMENT_ROWS; ++row)
      for (int x = threadIdx.x; x < columns; x += THREADS)
        if (block.y0 + row < a.height)
          Format::pixel(a, at, x, row, picture + (row * PX + x) * Format::CHANNELS);
    __syncthreads();

    const uint8* made = points(picture, spare, block.x0, block.y0);
    constexpr int OUT_WORDS = PX * OUT / WORD;
    uint8* dst = a.dst ? a.dst : f.result;
    for (int i = threadIdx.x; i < SEGMENT_ROWS * OUT_WORDS; i += THREADS) {
      const int row = i / OUT_WORDS, byte = i % OUT_WORDS * WORD;
      const int column = block.x0 * OUT + byte;
      if (block.y0 + row >= a.height || column >= a.dst_stride) continue;
      const uint4 four = *reinterpret_cast<const uint4*>(made + row * PX * OUT + byte);
      uint8* to = dst + (long long)(block.y0 + row) * a.dst_stride + column;
      if (a.dst) {
        *reinterpret_cast<uint4*>(to) = four;
      } else {
        store_once(to, four);
      }
    }
    const int rows = min(SEGMENT_ROWS, a.height - block.y0);
    if (a.dst) finish_rows(a.made, block.y0, rows, DEPARTS ? f.departing_rows : BAND_ROWS);
  }
}

// The same table for each value of a block's rows.
template <int CHANNELS, int PX = SEGMENT_PX>
__device__ __forceinline__ void look_up_rows(uint8* picture, const uint8* table) {
  uint32* fours = reinterpret_cast<uint32*>(picture);
  for (int i = threadIdx.x; i < SEGMENT_ROWS * PX * CHANNELS / 4; i += THREADS)
    fours[i] = lookup4(table, fours[i]);
  __syncthreads();
}
