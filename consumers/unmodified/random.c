// A preload library: each large file mapping is told MADV_RANDOM, which the programs do not say themselves.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset) {
  void *map = (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
  if (map != MAP_FAILED && fd >= 0 && length >= 16u << 20) madvise(map, length, MADV_RANDOM);
  return map;
}

void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off_t offset) {
  return mmap(addr, length, prot, flags, fd, offset);
}
