// How the passes of a frame run side by side in one launch and hand rows to each other.
//
// A block takes a ticket when it starts, and the ticket says which pass it works for: low tickets read the slot, then come the passes in
// the chain's order. A block only ever waits for passes with lower tickets, whose blocks have started and wait for lower ones yet: so
// a launch comes to its end whatever else the device runs, and however few of its blocks fit at once. Counters only grow, by the
// same amount each frame, so nothing is reset between frames; they may wrap.
#pragma once
#include "pinhole/common.cuh"

constexpr int THREADS = 256;  // of a block
constexpr int BAND_ROWS = 16;  // rows are handed over in bands
constexpr int MAX_TEXTS = 8, MAX_TEXT_BYTES = 96;
constexpr int PASS_BYTES = 256;  // of the plan's block, for each pass

extern __shared__ __align__(16) uint8 shared_memory[];

// What differs from frame to frame. `plan` is device memory: a block for each pass, then one for each op's parameters.
struct Frame {
  uint32* tickets;
  const uint8* plan;
  const uint8* planes[3];
  uint8* result;
  const uint32* arrived;  // for each band of the source the number of the last frame whose rows copies have brought
  uint32 arrival;         // this frame's number there
  int arrived_rows;       // of each band
  int departing_rows;     // of each band of a result that copies take away
  uint32 first_ticket;
  uint32 number;  // of the frame, from 1
  uint8 texts[MAX_TEXTS][MAX_TEXT_BYTES];  // what text ops write into it, zeros behind
};

__device__ __forceinline__ int take_ticket(const Frame& f) {
  __shared__ uint32 ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(f.tickets, 1) - f.first_ticket;
  __syncthreads();
  return ticket;
}

// How far a picture between two passes has come: for each band, finished rows times the tiles across, over all frames.
struct Rows {
  uint32* finished;
  int across;
  int height;
};

__device__ __forceinline__ uint32 load_acquire(const uint32* address) {
  uint32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// The same for what a copy engine writes.
__device__ __forceinline__ uint32 load_acquire_of_system(const uint32* address) {
  uint32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Returns, in every thread of the block, once rows `first` to `last` (not included) of a source `height` rows high have arrived.
__device__ __forceinline__ void wait_for_source(const Frame& f, int first, int last, int height) {
  const int bands = (min(last, height) - 1) / f.arrived_rows + 1;
  for (int band = max(first, 0) / f.arrived_rows + threadIdx.x; band < bands; band += blockDim.x)
    while ((int)(load_acquire_of_system(f.arrived + band) - f.arrival) < 0) __nanosleep(64);
  __syncthreads();
}

// Returns, in every thread of the block, once rows `first` to `last` (not included; cut to the picture) of this frame are made.
__device__ __forceinline__ void wait_for_rows(const Frame& f, const Rows& rows, int first, int last) {
  const int bands = (min(last, rows.height) - 1) / BAND_ROWS + 1;
  for (int band = max(first, 0) / BAND_ROWS + threadIdx.x; band < bands; band += blockDim.x) {
    const uint32 target = f.number * rows.across * min(BAND_ROWS, rows.height - band * BAND_ROWS);
    while ((int)(load_acquire(rows.finished + band) - target) < 0) __nanosleep(64);
  }
  __syncthreads();
}

// True in every thread of the last of a pass's blocks that comes here, of those that call it once a frame: it sees what all of them
// have written. Every thread calls it; `come` is device memory, zero before the first frame.
__device__ __forceinline__ bool last_to_come(uint32* come, int workers) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(come, 1) == workers - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
  if (threadIdx.x == 0) *come = 0;
  return true;
}

// Says that this block has written `count` rows, all in the band of row `row`, of one tile. Every thread of the block calls it.
__device__ __forceinline__ void finish_rows(const Rows& rows, int row, int count, int band_rows = BAND_ROWS) {
  __syncthreads();
  // The last warp never waits for the link (ingest.cuh), so neither does its fence.
  if (threadIdx.x == blockDim.x - 1) {
    __threadfence();
    atomicAdd(rows.finished + row / band_rows, (uint32)count);
  }
}
