/* Preloaded into a process, counts its allocations of at least a given size; see test_allocations.py.
 * glibc only: the allocator's own entry points are called underneath. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic size_t threshold = 0; /* 0: not counting */
static _Atomic size_t count = 0;

void large_allocations_start(size_t bytes) {
  count = 0;
  threshold = bytes;
}

size_t large_allocations_stop(void) {
  threshold = 0;
  return count;
}

static void note(size_t bytes) {
  if (threshold != 0 && bytes >= threshold) count++;
}

void *malloc(size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}

void *calloc(size_t items, size_t bytes) {
  if (bytes == 0 || items <= (size_t)-1 / bytes) note(items * bytes);
  return __libc_calloc(items, bytes);
}

void *realloc(void *old, size_t bytes) {
  note(bytes);
  return __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
  note(bytes);
  void *memory = __libc_memalign(alignment, bytes);
  if (memory == NULL) return ENOMEM;
  *out = memory;
  return 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  note(bytes);
  return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(address, bytes, protection, flags, fd, offset);
}
