// How often each brightness comes in each region of a grid over the picture, the tables that an op makes of that, and what they make
// of a pixel between the middles of four regions: kernels.local_tables, in the same whole numbers.
#pragma once
#include "pinhole/statistic.cuh"

constexpr int MAX_REGIONS = 256;

struct Grid {
  int across, down;
};

// Equal regions; where they do not fit the picture they reach beyond it by less than the grid has regions.
struct Regions {
  Grid grid;
  Size picture, size;
  __device__ __forceinline__ Regions(const Grid& grid, const Size& picture) : grid(grid), picture(picture) {
    const int more = picture.width % grid.across != 0 || picture.height % grid.down != 0;
    size.width = picture.width / grid.across + more;
    size.height = picture.height / grid.down + more;
  }
};

// In device memory, zero before the first frame; one for each op.
template <int CHANNELS>
struct LocalStatistic {
  uint32 before[256 * MAX_REGIONS];  // counts of the frame before
  Grid grid;                         // of that frame
  uint32 ready, done;                // blocks that have made their tables, or counted
  uint8 tables[256 * MAX_REGIONS];
};

template <int CHANNELS>
__device__ __forceinline__ int brightness_of(const uint8* pixel) {
  return CHANNELS == 1 ? pixel[0] : (3735 * pixel[0] + 19235 * pixel[1] + 9798 * pixel[2] + (1 << 14)) >> 15;
}

// Adds the pixels of one region to counts in shared memory, four at a time where they lie in the picture.
template <int CHANNELS>
__device__ __forceinline__ void count_region(const StatisticPass& p, const Regions& regions, int x0, int y0,
                                             uint32* counts) {
  const int width = p.size.width, x1 = x0 + regions.size.width, inside = min(x1, width);
  const int first = x0 / 4, quads = inside > x0 ? (inside + 3) / 4 - first : 0, outside = x1 - max(x0, inside);
  const int across = quads + outside;
  for (int i = threadIdx.x; i < across * regions.size.height; i += THREADS) {
    const int row = i / across, place = i - row * across;
    const uint8* line = p.src + (long long)reflect101(y0 + row, p.size.height) * p.src_stride;
    if (place >= quads) {
      const int x = reflect101(max(x0, inside) + place - quads, width);
      uint8 pixel[CHANNELS];
      for (int c = 0; c < CHANNELS; ++c) pixel[c] = __ldcg(line + x * CHANNELS + c);
      atomicAdd(counts + brightness_of<CHANNELS>(pixel), 1);
      continue;
    }
    const int x = (first + place) * 4;
    uint8 pixels[4 * CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
      const int byte = x * CHANNELS + 4 * c;
      const uint32 word =
          byte < width * CHANNELS ? __ldcg(reinterpret_cast<const uint32*>(line + byte)) : 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) pixels[4 * c + k] = word >> 8 * k;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (x + k >= x0 && x + k < inside) atomicAdd(counts + brightness_of<CHANNELS>(pixels + k * CHANNELS), 1);
  }
}

// A block takes one region at a time, counts it and makes its table by `entry(histogram, pixels, value)`; tables of the frame before
// it makes first of all. What a region held is read and written by the same block.
template <int CHANNELS, class Entry>
__device__ __forceinline__ void count_regions(const Frame& f, const StatisticPass& p, int worker, const Grid& grid,
                                              LocalStatistic<CHANNELS>* statistic, Entry entry) {
  uint32* counts = reinterpret_cast<uint32*>(shared_memory);
  const Regions regions(grid, p.size);
  const int count = grid.across * grid.down, i = threadIdx.x;
  const uint32 pixels = (uint32)regions.size.width * regions.size.height;
  const bool previous =
      p.previous && statistic->grid.across == grid.across && statistic->grid.down == grid.down;
  for (int counting = previous ? 0 : 1; counting < 2; ++counting) {
    for (int region = worker; region < count; region += p.workers) {
      const int x0 = region % grid.across * regions.size.width, y0 = region / grid.across * regions.size.height;
      __syncthreads();
      counts[i] = counting ? 0 : statistic->before[256 * region + i];
      // Reflections lie above.
      if (counting) wait_for_rows(f, p.needed, 0, y0 + regions.size.height);
      __syncthreads();
      if (counting) {
        count_region<CHANNELS>(p, regions, x0, y0, counts);
        __syncthreads();
        statistic->before[256 * region + i] = counts[i];
      }
      if (!counting || !previous) statistic->tables[256 * region + i] = saturate8(entry(counts, pixels, i));
    }
    if (!counting && last_to_come(&statistic->ready, p.workers)) finish_rows(p.made, 0, 1);
  }
  // Whoever comes last: all have seen the grid of the frame before.
  if (!last_to_come(&statistic->done, p.workers)) return;
  if (threadIdx.x == 0) statistic->grid = grid;
  if (!previous) finish_rows(p.made, 0, 1);
}

// Between which two of `parts` regions a place lies, and the second's share.
struct Between {
  int first, second;
  uint32 share;  // in 1/unit
  __device__ __forceinline__ Between(int place, int size, int parts, uint32 unit) {
    const uint32 from_first = 2 * place + size, number = from_first / (2 * size), rest = from_first - number * 2 * size;
    first = max((int)number - 1, 0);
    second = min((int)number, parts - 1);
    share = (unit * rest + size) / (2 * size);
  }
};

template <int CHANNELS>
__device__ __forceinline__ void look_up_between(const Picture<CHANNELS>& in, int x, int y, const Regions& regions,
                                                const uint8* tables, uint8* out) {
  const Between column(x, regions.size.width, regions.grid.across, 256);
  const Between row(y, regions.size.height, regions.grid.down, 32768);
  const uint8* pixel = in.at(x, y);
  const int value = brightness_of<CHANNELS>(pixel);
  const uint8* upper = tables + 256 * regions.grid.across * row.first + value;
  const uint8* lower = tables + 256 * regions.grid.across * row.second + value;
  const int left = 256 * column.first, right = 256 * column.second;
  const uint32 above = upper[left] * (256 - column.share) + upper[right] * column.share;
  const uint32 below = lower[left] * (256 - column.share) + lower[right] * column.share;
  const int made = (above * (32768 - row.share) + below * row.share + (1 << 22)) >> 23;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = saturate8(pixel[c] + made - value);
}

// The same for a tile and `halo` pixels around it, in place.
template <int CHANNELS, int WIDTH>
__device__ __forceinline__ void look_up_between_regions(const Buffer<CHANNELS, WIDTH>& picture, const Tile& tile, int halo,
                                                        const Grid& grid, const uint8* tables) {
  const Regions regions(grid, tile.size);
  make_pixels<CHANNELS, CHANNELS>(picture.picture(tile), picture.data, picture.pitch, tile.x0, tile.y0, -up4(halo),
                                  WIDTH + up4(halo), -halo, TILE_ROWS + halo, tile.size,
                                  [&](const Picture<CHANNELS>& in, int x, int y, Size, uint8* out) {
                                    look_up_between<CHANNELS>(in, x, y, regions, tables, out);
                                  });
  __syncthreads();
}
