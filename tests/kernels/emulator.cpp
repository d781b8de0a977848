// Runs the text of a frame's kernel on the processor: its blocks one after the other, the threads of a block as fibers that change at
// barriers only. Blocks take their tickets in order, so whoever waits for rows finds them made, or nobody makes them.
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

using std::max;
using std::min;

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static
#define __constant__
#define __align__(bytes) alignas(bytes)

struct Index {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static Index threadIdx, blockIdx;
static const Index blockDim{256, 1, 1};
static unsigned char* shared_memory;

[[noreturn]] static void fail(const char* what) {
  std::fprintf(stderr, "emulator: %s\n", what);
  std::abort();
}

template <class T>
T __ldcg(const T* address) { return *address; }
template <class T>
T __ldcs(const T* address) { return *address; }
template <class T>
T __ldg(const T* address) { return *address; }
template <class T>
void __stcs(T* address, T value) { *address = value; }
inline unsigned atomicAdd(unsigned* address, unsigned value) { return std::exchange(*address, *address + value); }
inline unsigned atomicCAS(unsigned* address, unsigned compare, unsigned value) {
  return *address == compare ? std::exchange(*address, value) : *address;
}
inline void __threadfence() {}

// Copies that are under way while the kernel runs; each step ends with the word that says so.
struct Copy {
  void* to;
  const void* from;  // null: `bytes` is the word
  unsigned long long bytes;
};
static std::deque<Copy> copies;

static bool next_copies_arrive() {
  while (!copies.empty()) {
    const Copy copy = copies.front();
    copies.pop_front();
    if (!copy.from) return *(unsigned*)copy.to = (unsigned)copy.bytes, true;
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  return false;
}

extern "C" void start_copy(void* to, const void* from, unsigned long long bytes) { copies.push_back({to, from, bytes}); }

// A copy never arrives before somebody waits for it: who does not wait sees what was there before.
inline void __nanosleep(unsigned) {
  if (!next_copies_arrive()) fail("a block waits for rows that no pass before it has made");
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned __int128)a * b >> 64;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return ((unsigned long long)high << 32 | low) >> (shift & 31);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)high << 32 | low;
  unsigned out = 0;
  for (int k = 0; k < 4; ++k) out |= (unsigned)(bytes >> 8 * (selector >> 4 * k & 7) & 255) << 8 * k;
  return out;
}
template <class Choose>
unsigned of_bytes(unsigned a, unsigned b, Choose choose) {
  unsigned out = 0;
  for (int k = 0; k < 32; k += 8) out |= choose(a >> k & 255, b >> k & 255) << k;
  return out;
}
inline unsigned __vminu4(unsigned a, unsigned b) {
  return of_bytes(a, b, [](unsigned x, unsigned y) { return min(x, y); });
}
inline unsigned __vmaxu4(unsigned a, unsigned b) {
  return of_bytes(a, b, [](unsigned x, unsigned y) { return max(x, y); });
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __expf(float a) { return std::exp(a); }

constexpr int FIBERS = 256;
constexpr size_t STACK = 256 << 10;
static ucontext_t scheduler, fibers[FIBERS];
static bool over[FIBERS];
static int running;

inline void __syncthreads() {
  const Index mine = threadIdx;
  swapcontext(&fibers[running], &scheduler);
  threadIdx = mine;
}

// PLAN

static const Frame* frame_now;

static void thread() {
  frame(*frame_now);
  over[running] = true;
}

// Between two barriers the threads run in this order: forwards, backwards, or shuffled. Who races sees another outcome.
static int thread_at(int place, int order, unsigned phase) {
  if (order == 0) return place;
  if (order == 1) return FIBERS - 1 - place;
  return (place * 77 + phase * 31) % FIBERS;
}

extern "C" void emulate(unsigned grid, unsigned shared_bytes, const Frame* f, int order) {
  static char* stacks = static_cast<char*>(std::malloc(STACK * FIBERS));
  const size_t page = sysconf(_SC_PAGESIZE), room = (shared_bytes + page - 1) / page * page;
  auto* pages = static_cast<unsigned char*>(
      mmap(nullptr, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  // What is written behind the block's memory ends the process at once; before it, the guard tells.
  mprotect(pages + page + room, page, PROT_NONE);
  shared_memory = pages + page + room - shared_bytes;
  frame_now = f;
  for (unsigned block = 0; block < grid; ++block) {
    blockIdx = {block, 0, 0};
    std::memset(pages, 0xa5, page + room);
    for (int i = 0; i < FIBERS; ++i) {
      over[i] = false;
      getcontext(&fibers[i]);
      fibers[i].uc_stack.ss_sp = stacks + STACK * i;
      fibers[i].uc_stack.ss_size = STACK;
      fibers[i].uc_link = &scheduler;
      makecontext(&fibers[i], thread, 0);
    }
    int left = FIBERS;
    for (unsigned phase = 0; left > 0; ++phase) {
      int ended = 0;
      for (int place = 0; place < FIBERS; ++place) {
        running = thread_at(place, order, phase);
        if (over[running]) continue;
        threadIdx = {(unsigned)running, 0, 0};
        swapcontext(&scheduler, &fibers[running]);
        ended += over[running];
      }
      if (ended != 0 && ended != left) fail("some threads of a block ended while others wait at a barrier");
      left -= ended;
    }
    for (unsigned char* guard = pages; guard < shared_memory; ++guard)
      if (*guard != 0xa5) fail("written before the block's shared memory");
  }
  munmap(pages, room + 2 * page);
  while (next_copies_arrive()) {
  }
}
