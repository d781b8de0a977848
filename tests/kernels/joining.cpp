// Joins the pixels of pictures by many threads at once with the text of join.cuh, and compares with a flood by one: exit status 0 if all
// are the same. Prints the longest way to a top, and the loads for each pixel, over all pictures.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

using std::max;
using std::min;

#define __device__
#define __forceinline__ inline

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
template <class T>
T __ldcg(const T* address) { return *address; }
template <class T>
T __ldcs(const T* address) { return *address; }
template <class T>
void __stcs(T* address, T value) { *address = value; }
struct uint4 {
  unsigned x, y, z, w;
};
inline unsigned atomicCAS(unsigned* address, unsigned compare, unsigned value) {
  __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}
static thread_local unsigned long long loads;

// JOIN

constexpr int THREADS = 8, PIECE = 64;
enum Kind : unsigned char { NO, PERHAPS, SURE };

struct Made {
  int width, height;
  std::vector<unsigned char> kinds;
  Made(int width, int height) : width(width), height(height), kinds((size_t)width * height, NO) {}
};

// One pixel wide, from a corner to the middle, where it is certain.
static Made spiral(int size) {
  Made made(size, size);
  int x = 0, y = 0, dx = 1, dy = 0, left = size - 1;
  for (int turn = 0; left > 0; ++turn) {
    for (int k = 0; k < left; ++k, x += dx, y += dy) made.kinds[(size_t)y * size + x] = PERHAPS;
    const int old = dx;
    dx = -dy, dy = old;
    if (turn > 0 && turn % 2 == 0) left -= 2;
  }
  made.kinds[(size_t)y * size + x] = SURE;
  return made;
}

static Made noise(int width, int height, int percent, int sure, unsigned seed) {
  Made made(width, height);
  std::srand(seed);
  for (auto& kind : made.kinds) kind = std::rand() % 100 >= percent ? NO : std::rand() % 1000 < sure ? SURE : PERHAPS;
  return made;
}

static std::vector<bool> flood(const Made& made) {
  std::vector<bool> found(made.kinds.size());
  std::vector<size_t> todo;
  for (size_t at = 0; at < found.size(); ++at)
    if (made.kinds[at] == SURE) found[at] = true, todo.push_back(at);
  while (!todo.empty()) {
    const int y = todo.back() / made.width, x = todo.back() % made.width;
    todo.pop_back();
    for (int v = max(y - 1, 0); v < min(y + 2, made.height); ++v)
      for (int u = max(x - 1, 0); u < min(x + 2, made.width); ++u) {
        const size_t at = (size_t)v * made.width + u;
        if (made.kinds[at] != NO && !found[at]) found[at] = true, todo.push_back(at);
      }
  }
  return found;
}

int main() {
  std::vector<Made> pictures{spiral(1501), Made(1, 1), noise(1, 300, 90, 20, 1), noise(300, 1, 90, 20, 2)};
  for (int percent = 20; percent <= 100; percent += 16) pictures.push_back(noise(701, 503, percent, 1, percent));
  unsigned longest = 0;
  double most_loads = 0;
  for (const Made& made : pictures) {
    const unsigned pixels = made.kinds.size();
    std::vector<uint32> labels(pixels);
    for (unsigned at = 0; at < pixels; ++at)
      labels[at] = made.kinds[at] == NO ? NOTHING : made.kinds[at] == SURE ? CERTAIN : at;
    std::vector<std::thread> threads;
    std::atomic<unsigned long long> all{0};
    for (unsigned thread = 0; thread < THREADS; ++thread)
      threads.emplace_back([&, thread] {
        loads = 0;
        for (unsigned first = thread * PIECE; first < pixels; first += THREADS * PIECE)
          for (unsigned at = first; at < min(first + PIECE, pixels); ++at)
            if (load_relaxed(&labels[at]) != NOTHING) join_with_neighbours(labels.data(), at, made.width);
        all += loads;
      });
    for (auto& thread : threads) thread.join();
    most_loads = max(most_loads, (double)all / pixels);
    const auto expected = flood(made);
    for (unsigned at = 0; at < pixels; ++at) {
      if (made.kinds[at] != NO && is_certain(labels.data(), at) != expected[at]) {
        std::fprintf(stderr, "%dx%d: pixel %u is wrong\n", made.width, made.height, at);
        return 1;
      }
      unsigned way = 0;
      for (uint32 up = at; up < CERTAIN && labels[up] < CERTAIN && labels[up] != up; up = labels[up]) ++way;
      longest = max(longest, way);
    }
  }
  std::printf("%u %.1f\n", longest, most_loads);
  return 0;
}
