// A point op as a table: whole words in device memory, the padding of rows included.
#pragma once
#include "pinhole/common.cuh"

constexpr int POINT_THREADS = 256;

struct Table {
  uint8 entry[256];
};

struct TableArgs {
  const uint8* src;
  uint8* dst;
  int words;
  Table table;
};

__device__ __forceinline__ uint32 lookup4(const uint8* table, uint32 four) {
  return table[four & 255] | table[four >> 8 & 255] << 8 | table[four >> 16 & 255] << 16 | table[four >> 24] << 24;
}

__device__ __forceinline__ void table_op(const TableArgs& a) {
  __shared__ uint8 table[256];
  table[threadIdx.x] = a.table.entry[threadIdx.x];
  __syncthreads();
  const uint4* src = reinterpret_cast<const uint4*>(a.src);
  uint4* dst = reinterpret_cast<uint4*>(a.dst);
  for (int i = blockIdx.x * POINT_THREADS + threadIdx.x; i < a.words; i += gridDim.x * POINT_THREADS) {
    const uint4 in = src[i];
    dst[i] = make_uint4(lookup4(table, in.x), lookup4(table, in.y), lookup4(table, in.z), lookup4(table, in.w));
  }
}
