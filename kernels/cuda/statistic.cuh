// How often each value comes in a picture, and the tables that an op makes of that.
#pragma once
#include "pinhole/point.cuh"
#include "pinhole/tile.cuh"

struct StatisticPass {
  const uint8* src;
  int src_stride;
  Size size;
  Rows needed, made;
  int workers;   // blocks
  int previous;  // not 0: what the frame before has counted, so that nobody waits for the whole of this one
};

// In device memory, zero before the first frame; one for each op.
template <int CHANNELS>
struct Statistic {
  uint32 counts[256 * CHANNELS];  // of this frame so far; zero between frames
  uint32 before[256 * CHANNELS];  // of the frame before
  uint32 done;                    // blocks that have added theirs
  uint8 tables[256 * CHANNELS];
};

// Makes the tables of counts in shared memory, by all threads of one block, and hands them over.
template <int CHANNELS, class Entry>
__device__ __forceinline__ void make_tables(const StatisticPass& p, const uint32* counts,
                                            Statistic<CHANNELS>* statistic, Entry entry) {
  const uint32 pixels = (uint32)p.size.width * p.size.height;
  for (int i = threadIdx.x; i < 256 * CHANNELS; i += THREADS)
    statistic->tables[i] = saturate8(entry(counts, pixels, i / 256, i % 256));
  finish_rows(p.made, 0, 1);
}

// `entry(histogram, pixels, channel, value)` is what becomes of a value. The last block to finish makes the tables; the
// first to start does, if they are to be of the frame before. A frame's counts are kept only when all blocks have come here, so
// that first block has read those before.
template <int CHANNELS, class Entry>
__device__ __forceinline__ void count_values(const Frame& f, const StatisticPass& p, int worker,
                                             Statistic<CHANNELS>* statistic, Entry entry) {
  constexpr int ENTRIES = 256 * CHANNELS;
  uint32* counts = reinterpret_cast<uint32*>(shared_memory);
  const bool previous = p.previous && f.number != 1;
  if (previous && worker == 0) {
    for (int i = threadIdx.x; i < ENTRIES; i += THREADS) counts[i] = __ldcg(statistic->before + i);
    __syncthreads();
    make_tables(p, counts, statistic, entry);
    __syncthreads();
  }
  for (int i = threadIdx.x; i < ENTRIES; i += THREADS) counts[i] = 0;
  __syncthreads();
  const int row_bytes = p.size.width * CHANNELS, words = (row_bytes + WORD - 1) / WORD;
  for (int top = worker * BAND_ROWS; top < p.size.height; top += p.workers * BAND_ROWS) {
    wait_for_rows(f, p.needed, top, top + BAND_ROWS);
    const int rows = min(BAND_ROWS, p.size.height - top);
    for (int i = threadIdx.x; i < rows * words; i += THREADS) {
      const int row = i / words, byte = (i - row * words) * WORD;
      const uint4 word = __ldcg(reinterpret_cast<const uint4*>(p.src + (long long)(top + row) * p.src_stride + byte));
      const uint32 fours[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int k = 0; k < WORD; ++k)
        if (byte + k < row_bytes) atomicAdd(counts + 256 * ((byte + k) % CHANNELS) + (fours[k / 4] >> k % 4 * 8 & 255), 1);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < ENTRIES; i += THREADS)
    if (counts[i]) atomicAdd(statistic->counts + i, counts[i]);
  if (!last_to_come(&statistic->done, p.workers)) return;
  for (int i = threadIdx.x; i < ENTRIES; i += THREADS) {
    counts[i] = statistic->before[i] = __ldcg(statistic->counts + i);
    statistic->counts[i] = 0;
  }
  __syncthreads();
  if (!previous) make_tables(p, counts, statistic, entry);
}

// Waits for the tables and copies them to shared memory.
template <int CHANNELS>
__device__ __forceinline__ void take_tables(const Frame& f, const Rows& made, const Statistic<CHANNELS>* statistic,
                                            uint8* tables) {
  wait_for_rows(f, made, 0, 1);
  for (int i = threadIdx.x; i < 256 * CHANNELS; i += THREADS) tables[i] = __ldcg(statistic->tables + i);
  __syncthreads();
}

// The table of its channel for each value of a tile and `halo` pixels around it.
template <int CHANNELS, int WIDTH>
__device__ __forceinline__ void look_up_each(const Buffer<CHANNELS, WIDTH>& picture, int halo, const uint8* tables) {
  const int columns = (WIDTH + 2 * halo) * CHANNELS;
  for (int i = threadIdx.x; i < (TILE_ROWS + 2 * halo) * columns; i += THREADS) {
    const int row = i / columns, byte = i - row * columns;
    uint8* value = picture.data + (row - halo) * picture.pitch - halo * CHANNELS + byte;
    *value = tables[256 * (byte % CHANNELS) + *value];
  }
  __syncthreads();
}
