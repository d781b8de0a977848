// Point ops on single values: one table for any number of them in a row.
#pragma once
#include "pinhole/common.cuh"

__device__ __forceinline__ uint32 lookup4(const uint8* table, uint32 four) {
  return table[four & 255] | table[four >> 8 & 255] << 8 | table[four >> 16 & 255] << 16 | table[four >> 24] << 24;
}

// What happens to four values on their way out of a stage: nothing, or a table in shared memory.
struct AsTheyAre {
  __device__ __forceinline__ uint32 operator()(uint32 four) const { return four; }
};

struct Through {
  const uint8* table;
  __device__ __forceinline__ uint32 operator()(uint32 four) const { return lookup4(table, four); }
};
