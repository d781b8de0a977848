// The last pass where rows of the result are no whole words: writes the packed result once, in whole words, from device memory.
#pragma once
#include "pinhole/flow.cuh"

constexpr int EGRESS_UNROLL = 4;  // words of a thread that are on their way at once

struct EgressPass {
  const uint8* src;
  int stride;
  int row_bytes;
  long long bytes;
  Rows needed;
  int workers;
};

// 16 bytes of the packed picture from byte `byte` on.
__device__ __forceinline__ uint4 packed_word(const EgressPass& p, long long byte) {
  long long row = byte / p.row_bytes;
  int column = (int)(byte - row * p.row_bytes);
  uint4 word;
  uint8* bytes = reinterpret_cast<uint8*>(&word);
#pragma unroll
  for (int k = 0; k < WORD; ++k) {
    bytes[k] = byte + k < p.bytes ? __ldcg(p.src + row * p.stride + column) : 0;
    if (++column == p.row_bytes) column = 0, ++row;
  }
  return word;
}

__device__ __forceinline__ void egress(const Frame& f, const EgressPass& p, int worker) {
  constexpr long long CHUNK = EGRESS_UNROLL * THREADS * WORD;
  int ready = 0;  // rows that were waited for: chunks come in order
  for (long long chunk = worker * CHUNK; chunk < p.bytes; chunk += p.workers * CHUNK) {
    const int end = (int)((min(chunk + CHUNK, p.bytes) - 1) / p.row_bytes) + 1;
    if (end > ready) {
      wait_for_rows(f, p.needed, (int)(chunk / p.row_bytes), end);
      ready = end;
    }
    uint4 words[EGRESS_UNROLL];
#pragma unroll
    for (int k = 0; k < EGRESS_UNROLL; ++k) {
      const long long byte = chunk + (k * THREADS + (int)threadIdx.x) * WORD;
      if (byte < p.bytes) words[k] = packed_word(p, byte);
    }
#pragma unroll
    for (int k = 0; k < EGRESS_UNROLL; ++k) {
      const long long byte = chunk + (k * THREADS + (int)threadIdx.x) * WORD;
      if (byte + WORD <= p.bytes) {
        store_once(f.result + byte, words[k]);
      } else {
#pragma unroll
        for (int b = 0; b < WORD; ++b)
          if (byte + b < p.bytes) f.result[byte + b] = reinterpret_cast<const uint8*>(&words[k])[b];
      }
    }
  }
}
