// Which pixels hang together: sets that all threads of the GPU join at once, without locks.
//
// A label is the place of another pixel of the same set, further up, or its own at the top; what is certain stands at the top of all
// sets that hold something certain. Sets are joined by putting one top below the other, by compare-and-swap: always the lower in an
// order that has nothing to do with the picture, so no ring can come about, and no picture, a spiral no more than another, makes ways
// to the top longer than a few times ln(pixels): Jayanti and Tarjan, A randomized concurrent algorithm for disjoint set union, 2016.
// A swap fails only where another thread's has succeeded. Ways are halved as they are walked; a label only ever moves up, so
// whichever of two writes comes last is right.
#pragma once
#include "pinhole/common.cuh"

constexpr uint32 NOTHING = 0xffffffff, CERTAIN = 0xfffffffe;

__device__ __forceinline__ uint32 load_relaxed(const uint32* address) {
  uint32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void store_relaxed(uint32* address, uint32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

// Each number once, in no order (the finalizer of MurmurHash3).
__device__ __forceinline__ uint32 scrambled(uint32 number) {
  number = (number ^ number >> 16) * 0x85ebca6b;
  number = (number ^ number >> 13) * 0xc2b2ae35;
  return number ^ number >> 16;
}

__device__ __forceinline__ uint32 top_of(uint32* labels, uint32 at) {
  while (at != CERTAIN) {
    const uint32 up = load_relaxed(labels + at);
    if (up == at || up == CERTAIN) return up;
    const uint32 above = load_relaxed(labels + up);
    if (above == up) return up;
    store_relaxed(labels + at, above);
    at = above;
  }
  return CERTAIN;
}

__device__ __forceinline__ void join(uint32* labels, uint32 one, uint32 other) {
  for (;;) {
    one = top_of(labels, one);
    other = top_of(labels, other);
    if (one == other) return;
    const bool turned = one == CERTAIN || (other != CERTAIN && scrambled(one) > scrambled(other));
    const uint32 lower = turned ? other : one, upper = turned ? one : other;
    if (atomicCAS(labels + lower, lower, upper) == lower) return;
  }
}

// Joins a pixel with those of its eight neighbours that come before it. Two of them that touch are joined when it is their turn.
__device__ __forceinline__ void join_with_neighbours(uint32* labels, uint32 at, int width) {
  const int y = at / width, x = at - y * width;
  const auto known = [&](uint32 place) { return load_relaxed(labels + place) != NOTHING; };
  if (y > 0 && known(at - width)) return join(labels, at, at - width);
  if (x > 0 && known(at - 1)) {
    join(labels, at, at - 1);
  } else if (x > 0 && y > 0 && known(at - width - 1)) {
    join(labels, at, at - width - 1);
  }
  if (y > 0 && x + 1 < width && known(at - width + 1)) join(labels, at, at - width + 1);
}

// The same as `top_of(labels, at) == CERTAIN` when nobody joins any more.
__device__ __forceinline__ bool is_certain(const uint32* labels, uint32 at) {
  uint32 up = __ldcg(labels + at);
  while (up < CERTAIN) {
    const uint32 above = __ldcg(labels + up);
    if (above == up) return false;
    up = above;
  }
  return up == CERTAIN;
}
