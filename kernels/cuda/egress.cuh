// The last pass: writes the packed result once, in whole words, from the working picture in device memory.
//
// A few blocks fill the link; more only lengthen the queue that every other kernel's end waits behind.
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

// 16 bytes of the packed picture from byte `byte` on.
__device__ __forceinline__ uint4 packed_word(const EgressArgs& a, long long byte) {
  long long row = byte / a.row_bytes;
  int column = (int)(byte - row * a.row_bytes);
  if (a.row_bytes % WORD == 0) return *reinterpret_cast<const uint4*>(a.src + row * a.stride + column);
  uint4 word;
  uint8* bytes = reinterpret_cast<uint8*>(&word);
#pragma unroll
  for (int k = 0; k < WORD; ++k) {
    bytes[k] = byte + k < a.bytes ? a.src[row * a.stride + column] : 0;
    if (++column == a.row_bytes) column = 0, ++row;
  }
  return word;
}

__device__ __forceinline__ void egress(const EgressArgs& a) {
  const long long step = (long long)gridDim.x * EGRESS_THREADS * WORD;
  for (long long byte = a.first + ((long long)blockIdx.x * EGRESS_THREADS + threadIdx.x) * WORD; byte < a.bytes; byte += step) {
    const uint4 word = packed_word(a, byte);
    if (byte + WORD <= a.bytes) {
      store_once(a.dst + byte, word);
    } else {
#pragma unroll
      for (int k = 0; k < WORD; ++k)
        if (byte + k < a.bytes) a.dst[byte + k] = reinterpret_cast<const uint8*>(&word)[k];
    }
  }
}
