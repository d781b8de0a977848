// Types, rounding, borders and whole-word access: what every pass shares.
#pragma once

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;

constexpr int WORD = 16;  // bytes of one access: a warp then moves whole 128-byte lines

__device__ __forceinline__ int clamp_to(int value, int low, int high) { return min(max(value, low), high); }

__device__ __forceinline__ uint32 saturate8(int value) { return clamp_to(value, 0, 255); }

// Values of 8 bits, or of 16: what holds weighted sums of them, and twice their bits; the greatest; what one of 255 levels is.
template <class Value>
struct Depth;

template <>
struct Depth<uint8> {
  typedef int Sum;
  typedef uint16 Double;
  static constexpr int MOST = 255, LEVEL = 1;
};

template <>
struct Depth<uint16> {
  typedef long long Sum;
  typedef uint32 Double;
  static constexpr int MOST = 65535, LEVEL = 257;
};

template <class Value>
__device__ __forceinline__ int saturate(typename Depth<Value>::Sum value) {
  typedef typename Depth<Value>::Sum Sum;
  return (int)min(max(value, (Sum)0), (Sum)Depth<Value>::MOST);
}

// Divides numbers below 2^16 by one below 2^16: a multiplication, where `/` by a run-time number takes twenty instructions.
struct Divider {
  uint32 divisor, reciprocal;
  __device__ __forceinline__ explicit Divider(int by) : divisor(by), reciprocal(0xffffffffu / by + 1) {}
  __device__ __forceinline__ int quotient(int of) const { return divisor == 1 ? of : __umulhi(of, reciprocal); }
  __device__ __forceinline__ int rest(int of, int quotient) const { return of - quotient * divisor; }
};

// BORDER_REFLECT_101 (gfedcb|abcdefgh|gfedcba), iterated where the picture is smaller than the window.
__device__ __forceinline__ int reflect101(int index, int size) {
  if (size == 1) return 0;
  if (index < 0) index = -index;
  if (index < size) return index;
  const int period = 2 * (size - 1);
  index %= period;
  return index < size ? index : period - index;
}

// Slots are read once and results written once: evict first, so that scratch stays in the L2.
__device__ __forceinline__ uint4 load_once(const uint8* address) {
  return __ldcs(reinterpret_cast<const uint4*>(address));
}

__device__ __forceinline__ void store_once(uint8* address, uint4 word) {
  __stcs(reinterpret_cast<uint4*>(address), word);
}
