// The last pass: writes the packed result once, in whole words, from the working picture in device memory.
#pragma once
#include "pinhole/common.cuh"

constexpr int EGRESS_THREADS = 256;

struct EgressArgs {
  const uint8* src;
  uint8* dst;
  int stride;
  int row_bytes;
  long long first, bytes;  // the band: from a whole word, up to but not including
};

__device__ __forceinline__ void egress(const EgressArgs& a) {
  const bool whole_rows = a.row_bytes % WORD == 0;
  const long long step = (long long)gridDim.x * EGRESS_THREADS * WORD;
  for (long long byte = a.first + ((long long)blockIdx.x * EGRESS_THREADS + threadIdx.x) * WORD; byte < a.bytes; byte += step) {
    long long row = byte / a.row_bytes;
    int column = (int)(byte - row * a.row_bytes);
    uint4 word;
    if (whole_rows) {
      word = *reinterpret_cast<const uint4*>(a.src + row * a.stride + column);
    } else {
      uint8* bytes = reinterpret_cast<uint8*>(&word);
#pragma unroll
      for (int k = 0; k < WORD; ++k) {
        bytes[k] = byte + k < a.bytes ? a.src[row * a.stride + column] : 0;
        if (++column == a.row_bytes) column = 0, ++row;
      }
    }
    if (byte + WORD <= a.bytes) {
      store_once(a.dst + byte, word);
    } else {
#pragma unroll
      for (int k = 0; k < WORD; ++k)
        if (byte + k < a.bytes) a.dst[byte + k] = reinterpret_cast<const uint8*>(&word)[k];
    }
  }
}
