// A tile of a picture with its halo in shared memory: what a pass of several ops works on.
//
// Two buffers take turns. Each stage makes the tile and as much around it as the stages behind still read, so the halo shrinks
// from stage to stage. What lies outside the picture holds the reflection of that very stage's values.
#pragma once
#include "pinhole/flow.cuh"
#include "pinhole/pixel.cuh"

constexpr int TILE_ROWS = BAND_ROWS;
constexpr int QUAD_ROWS = 4;  // rows that a thread of a stencil makes at once
constexpr int MAX_STENCILS = 16;

// One pass over a picture in device memory.
struct TilePass {
  const uint8* src;
  uint8* dst;  // null: the frame's result
  int src_stride, dst_stride;
  Size src_size, size;
  Rows needed, made;
  int workers;       // blocks
  int halo;          // in pixels: the sum of the radii
  int margin;        // pixels beside the tile in shared memory, a multiple of 16
  int buffer_bytes;  // of each of the two
  int radius[MAX_STENCILS];
  int chroma_offset[2], chroma_stride[2];  // of a result with planes
};

// WIDTH pixels by TILE_ROWS rows at pixel (x0, y0); all but the last across are whole.
struct Tile {
  int x0, y0;
  Size size;  // of the picture
  __device__ __forceinline__ bool near_border(int width, int halo) const {
    return x0 < halo || y0 < halo || x0 + width + halo > size.width || y0 + TILE_ROWS + halo > size.height;
  }
};

template <int CHANNELS, int WIDTH>
struct Buffer {
  uint8* data;  // of the tile's first pixel
  int pitch;

  __device__ __forceinline__ Buffer(const TilePass& p, uint8* memory)
      : data(memory + p.halo * ((WIDTH + 2 * p.margin) * CHANNELS) + p.margin * CHANNELS),
        pitch((WIDTH + 2 * p.margin) * CHANNELS) {}

  // The same by the pixels' places in the whole picture; only what the tile holds may be asked for.
  __device__ __forceinline__ Picture<CHANNELS> picture(const Tile& tile) const {
    return {data - (long long)tile.y0 * pitch - tile.x0 * CHANNELS, pitch, tile.size};
  }
};

__device__ __forceinline__ int up4(int value) { return (value + 3) & ~3; }

// Loads the tile and the pass's halo around it, past the L1 cache, as earlier passes of this launch wrote what it reads.
template <int CHANNELS, int WIDTH>
__device__ __forceinline__ void load_tile(const TilePass& p, const Tile& tile, const uint8* src,
                                          const Buffer<CHANNELS, WIDTH>& to) {
  const int row_bytes = tile.size.width * CHANNELS, side = (p.halo * CHANNELS + WORD - 1) / WORD * WORD;
  const int words = (WIDTH * CHANNELS + 2 * side) / WORD, rows = TILE_ROWS + 2 * p.halo;
  const int end = min(tile.y0 + TILE_ROWS + p.halo, tile.size.height + p.halo) - tile.y0 + p.halo;
  const Divider by_words(words);
  for (int i = threadIdx.x; i < words * min(rows, end); i += THREADS) {
    const int r = by_words.quotient(i), byte = by_words.rest(i, r) * WORD - side;
    const uint8* row = src + (long long)reflect101(tile.y0 + r - p.halo, tile.size.height) * p.src_stride;
    const int first = tile.x0 * CHANNELS + byte;
    if (first >= row_bytes + p.halo * CHANNELS) continue;  // right of every window that is kept
    uint8* out = to.data + (r - p.halo) * to.pitch + byte;
    if (first >= 0 && first + WORD <= row_bytes) {
      *reinterpret_cast<uint4*>(out) = __ldcg(reinterpret_cast<const uint4*>(row + first));
    } else {
      for (int k = 0; k < WORD; ++k) {
        const int column = first + k;
        const int pixel = column >= 0 ? column / CHANNELS : -((CHANNELS - 1 - column) / CHANNELS);
        out[k] = __ldcg(row + reflect101(pixel, tile.size.width) * CHANNELS + column - pixel * CHANNELS);
      }
    }
  }
  __syncthreads();
}

// Gives every pixel within `halo` of the tile that lies outside the picture the value of its reflection inside.
template <int CHANNELS, int WIDTH>
__device__ __forceinline__ void mend_border(const Tile& tile, const Buffer<CHANNELS, WIDTH>& buffer, int halo) {
  if (halo == 0 || !tile.near_border(WIDTH, halo)) return;
  const int columns = WIDTH + 2 * halo;
  for (int i = threadIdx.x; i < columns * (TILE_ROWS + 2 * halo); i += THREADS) {
    const int y = tile.y0 + i / columns - halo, x = tile.x0 + i % columns - halo;
    if (x >= 0 && x < tile.size.width && y >= 0 && y < tile.size.height) continue;
    if (x >= tile.size.width + halo || y >= tile.size.height + halo) continue;
    const uint8* from = buffer.data + (reflect101(y, tile.size.height) - tile.y0) * buffer.pitch +
                        (reflect101(x, tile.size.width) - tile.x0) * CHANNELS;
    uint8* to = buffer.data + (y - tile.y0) * buffer.pitch + (x - tile.x0) * CHANNELS;
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) to[c] = from[c];
  }
  __syncthreads();
}

// Writes the tile to device memory, or as part of the frame's result over the link; in whole words.
template <int CHANNELS, int WIDTH>
__device__ __forceinline__ void store_tile(const Frame& f, const TilePass& p, const Tile& tile,
                                           const Buffer<CHANNELS, WIDTH>& from) {
  constexpr int WORDS = WIDTH * CHANNELS / WORD;
  uint8* dst = p.dst ? p.dst : f.result;
  for (int i = threadIdx.x; i < WORDS * TILE_ROWS; i += THREADS) {
    const int r = i / WORDS, byte = i % WORDS * WORD, y = tile.y0 + r, column = tile.x0 * CHANNELS + byte;
    if (y >= tile.size.height || column >= p.dst_stride) continue;
    const uint4 word = *reinterpret_cast<const uint4*>(from.data + r * from.pitch + byte);
    uint8* to = dst + (long long)y * p.dst_stride + column;
    if (p.dst) {
      *reinterpret_cast<uint4*>(to) = word;
    } else {
      store_once(to, word);
    }
  }
}

// Up to four bytes to any address.
__device__ __forceinline__ void store_bytes(uint8* to, uint32 four, int count) {
  if (count >= 4 && ((uint64)to & 3) == 0) {
    *reinterpret_cast<uint32*>(to) = four;
  } else {
    for (int k = 0; k < min(count, 4); ++k) to[k] = four >> 8 * k;
  }
}

enum class Chroma { NONE, PLANES, PAIRS };  // GRAY8, I420, NV12

// Writes the tile as luma, and chroma of each 2x2 pixels: BT.601, full range (kernels.formats.luma and chroma). Tiles are even, and
// at the picture's odd ends its last column and row stand for what is missing.
template <int CHANNELS, int WIDTH, Chroma CHROMA>
__device__ __forceinline__ void store_planes(const Frame& f, const TilePass& p, const Tile& tile,
                                             const Buffer<CHANNELS, WIDTH>& from) {
  const int columns = tile.size.width - tile.x0, rows = tile.size.height - tile.y0;
  for (int i = threadIdx.x; i < WIDTH / 4 * TILE_ROWS; i += THREADS) {
    const int row = i / (WIDTH / 4), x = i % (WIDTH / 4) * 4;
    if (row >= rows || x >= columns) continue;
    const uint8* pixel = from.data + row * from.pitch + x * CHANNELS;
    uint32 four = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k, pixel += CHANNELS) {
      const uint32 luma =
          CHANNELS == 1 ? pixel[0] : (3735 * pixel[0] + 19235 * pixel[1] + 9798 * pixel[2] + (1 << 14)) >> 15;
      four |= luma << (8 * k);
    }
    store_bytes(f.result + (long long)(tile.y0 + row) * p.dst_stride + tile.x0 + x, four, columns - x);
  }
  if constexpr (CHROMA != Chroma::NONE) {
    for (int i = threadIdx.x; i < WIDTH / 8 * (TILE_ROWS / 2); i += THREADS) {
      const int row = i / (WIDTH / 8) * 2, x = i % (WIDTH / 8) * 8;
      if (row >= rows || x >= columns) continue;
      const int below = row + 1 < rows ? from.pitch : 0;
      uint32 u = 0x80808080, v = 0x80808080;
      if constexpr (CHANNELS == 3) {
        u = v = 0;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int column = x + 2 * k, right = column + 1 < columns ? CHANNELS : 0;
          const uint8* upper = from.data + row * from.pitch + column * CHANNELS;
          int sum[3];
#pragma unroll
          for (int c = 0; c < 3; ++c) sum[c] = upper[c] + upper[right + c] + upper[below + c] + upper[below + right + c];
          constexpr int MIDDLE = (128 << 14) + (1 << 13);
          u |= saturate8((2048 * sum[0] - 1357 * sum[1] - 691 * sum[2] + MIDDLE) >> 14) << (8 * k);
          v |= saturate8((2048 * sum[2] - 1715 * sum[1] - 333 * sum[0] + MIDDLE) >> 14) << (8 * k);
        }
      }
      const int count = (columns - x + 1) / 2, y = (tile.y0 + row) / 2, first = (tile.x0 + x) / 2;
      uint8* to = f.result + p.chroma_offset[0] + (long long)y * p.chroma_stride[0];
      if constexpr (CHROMA == Chroma::PLANES) {
        store_bytes(to + first, u, count);
        store_bytes(f.result + p.chroma_offset[1] + (long long)y * p.chroma_stride[1] + first, v, count);
      } else {
        store_bytes(to + 2 * first, __byte_perm(u, v, 0x5140), 2 * count);
        if (count > 2) store_bytes(to + 2 * first + 4, __byte_perm(u, v, 0x7362), 2 * count - 4);
      }
    }
  }
}
