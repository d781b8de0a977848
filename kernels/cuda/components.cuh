// A mask of what hangs together with something certain, over the whole picture: a pass that marks pixels, one that joins them, and
// what a tile of the mask then is.
#pragma once
#include "pinhole/join.cuh"
#include "pinhole/statistic.cuh"

constexpr int MARK_HALO = 2;
constexpr int JOIN_PX = 1024;  // that a block joins at once

// In device memory; `done` is zero before the first frame, labels are made anew in each.
template <int CHANNELS>
struct Components {
  uint32 done;  // blocks that have joined theirs
  uint32 unused[3];
  uint32 labels[1];  // as many as the picture has pixels
};

// Marks what `classify(at)` says of each pixel, 0 for nothing, 1 perhaps, 2 certain, from at(dx, dy): what `measure(at)` makes of the
// values at(dx, dy, channel), both up to a pixel away. Beyond its sides the picture goes on with its edge, and measures are 0.
template <int CHANNELS, int WIDTH, class Measure, class Classify>
__device__ __forceinline__ void mark_components(const Frame& f, const TilePass& pass, int worker, uint32* labels,
                                                Measure measure, Classify classify) {
  constexpr int ACROSS = WIDTH + 2;
  const Buffer<CHANNELS, WIDTH> picture(pass, shared_memory);
  int* measures = reinterpret_cast<int*>(shared_memory + pass.buffer_bytes);
  const int width = pass.size.width, height = pass.size.height;
  const int across = (width + WIDTH - 1) / WIDTH, tiles = across * ((height + TILE_ROWS - 1) / TILE_ROWS);
  for (int index = worker; index < tiles; index += pass.workers) {
    const Tile tile{index % across * WIDTH, index / across * TILE_ROWS, pass.size};
    wait_for_rows(f, pass.needed, tile.y0 - MARK_HALO, tile.y0 + TILE_ROWS + MARK_HALO);
    load_tile<CHANNELS, WIDTH>(pass, tile, pass.src, picture);
    for (int i = threadIdx.x; i < ACROSS * (TILE_ROWS + 2); i += THREADS) {
      const int row = i / ACROSS - 1, column = i % ACROSS - 1, x = tile.x0 + column, y = tile.y0 + row;
      int made = 0;
      if (x >= 0 && x < width && y >= 0 && y < height)
        made = measure([&](int dx, int dy, int channel) -> int {
          const int to_row = clamp_to(y + dy, 0, height - 1) - tile.y0, to_column = clamp_to(x + dx, 0, width - 1) - tile.x0;
          return picture.data[to_row * picture.pitch + to_column * CHANNELS + channel];
        });
      measures[i] = made;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < WIDTH * TILE_ROWS; i += THREADS) {
      const int row = i / WIDTH, column = i % WIDTH, x = tile.x0 + column, y = tile.y0 + row;
      if (x >= width || y >= height) continue;
      const int* here = measures + (row + 1) * ACROSS + column + 1;
      const int found = classify([&](int dx, int dy) { return here[dy * ACROSS + dx]; });
      const uint32 at = (uint32)y * width + x;
      labels[at] = found == 0 ? NOTHING : found == 1 ? at : CERTAIN;
    }
    finish_rows(pass.made, tile.y0, min(TILE_ROWS, height - tile.y0));
  }
}

// Joins what is marked once all of it is: labels of any row may be on the way to a top.
template <int CHANNELS>
__device__ __forceinline__ void join_components(const Frame& f, const StatisticPass& pass, int worker,
                                                Components<CHANNELS>* components) {
  const uint32 pixels = (uint32)pass.size.width * pass.size.height;
  uint32* labels = components->labels;
  wait_for_rows(f, pass.needed, 0, pass.size.height);
  for (uint32 first = (uint32)worker * JOIN_PX; first < pixels; first += (uint32)pass.workers * JOIN_PX)
    for (uint32 at = first + threadIdx.x; at < min(first + JOIN_PX, pixels); at += THREADS)
      if (load_relaxed(labels + at) != NOTHING) join_with_neighbours(labels, at, pass.size.width);
  if (last_to_come(&components->done, pass.workers)) finish_rows(pass.made, 0, 1);
}

// 255 where a pixel hangs together with something certain, else 0: a tile and `halo` pixels around it.
template <int WIDTH>
__device__ __forceinline__ void make_mask(const uint32* labels, const Tile& tile, int halo, const Buffer<1, WIDTH>& to) {
  make_pixels<1, 1>(Picture<1>{nullptr, 0, tile.size}, to.data, to.pitch, tile.x0, tile.y0, -up4(halo),
                    WIDTH + up4(halo), -halo, TILE_ROWS + halo, tile.size,
                    [&](const Picture<1>&, int x, int y, Size size, uint8* out) {
                      out[0] = is_certain(labels, (uint32)y * size.width + x) ? 255 : 0;
                    });
  __syncthreads();
}
