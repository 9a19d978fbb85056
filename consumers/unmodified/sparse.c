// One page in a hundred of a file is read, in an order that a seed draws, or a stride apart. As document 003 measures
// it, in our own words: nothing is advised, and one byte of a page is touched.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define PAGE 4096

static uint64_t drawn = 88172645463325252u;

static uint64_t draw(void) {
  drawn ^= drawn << 13;
  drawn ^= drawn >> 7;
  drawn ^= drawn << 17;
  return drawn;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: sparse FILE random|STRIDE\n");
    return 2;
  }
  int fd = open(argv[1], O_RDONLY);
  struct stat file;
  if (fd < 0 || fstat(fd, &file) != 0) {
    perror(argv[1]);
    return 2;
  }
  unsigned char *map = mmap(NULL, file.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) {
    perror("mmap");
    return 2;
  }
  uint64_t pages = file.st_size / PAGE, stride = strcmp(argv[2], "random") == 0 ? 0 : strtoull(argv[2], NULL, 10);
  struct timespec begun, ended;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  uint64_t sum = 0;
  for (uint64_t touch = 0; touch < pages / 100; touch++) {
    uint64_t page = stride == 0 ? draw() % pages : touch * stride % pages;
    sum = sum * 31 + map[page * PAGE + touch % PAGE];
  }
  clock_gettime(CLOCK_MONOTONIC, &ended);
  printf("%llu\n", (unsigned long long)sum);
  fprintf(stderr, "took %.3f s\n", (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
  return 0;
}
