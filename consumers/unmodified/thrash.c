// Threads that map a file of their own, read every page of it, and unmap it, for a time. As document 000 measures it, in
// our own words: its files have data, and every page is compared with what it has to be.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define SIZE (16 << 20)

static const char *directory;
static atomic_int stop, wrong;

struct worker {
  pthread_t thread;
  unsigned number;
  uint64_t rounds;
  uint64_t pages;
};

static void name(char *path, size_t size, unsigned number) { snprintf(path, size, "%s/file-%u", directory, number); }

// The first word of a page says whose it is.
static uint64_t word(unsigned number, uint64_t page) { return (uint64_t)number << 32 | (page + 1); }

static int fill(FILE *file, unsigned number) {
  uint64_t page[PAGE / 8];
  for (uint64_t at = 0; at < SIZE / PAGE; at++) {
    for (unsigned part = 0; part < PAGE / 8; part++) page[part] = word(number, at) * (part + 1);
    if (fwrite(page, PAGE, 1, file) != 1) return -1;
  }
  return 0;
}

// Under another name first, so that a file that is there is whole.
static int make(unsigned number) {
  char path[4096], unfinished[sizeof path + 16];
  name(path, sizeof path, number);
  struct stat about;
  if (stat(path, &about) == 0 && about.st_size == SIZE) return 0;
  snprintf(unfinished, sizeof unfinished, "%s.unfinished", path);
  FILE *file = fopen(unfinished, "w");
  if (!file) return -1;
  int filled = fill(file, number);
  int closed = fclose(file);
  if (filled == 0 && closed == 0 && rename(unfinished, path) == 0) return 0;
  int why = errno;
  unlink(unfinished);
  errno = why;
  return -1;
}

static void *work(void *argument) {
  struct worker *worker = argument;
  char path[4096];
  name(path, sizeof path, worker->number);
  int fd = open(path, O_RDONLY);
  while (fd >= 0 && !atomic_load(&stop)) {
    uint64_t *map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) break;
    for (uint64_t page = 0; page < SIZE / PAGE && !atomic_load(&stop); page++) {
      if (map[page * (PAGE / 8)] != word(worker->number, page)) atomic_store(&wrong, 1);
      worker->pages++;
    }
    munmap(map, SIZE);
    if (!atomic_load(&stop)) worker->rounds++;
  }
  if (fd >= 0) close(fd);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5) {
    fprintf(stderr, "usage: thrash make DIRECTORY THREADS | thrash run DIRECTORY THREADS SECONDS\n");
    return 2;
  }
  directory = argv[2];
  unsigned threads = (unsigned)atoi(argv[3]);
  if (strcmp(argv[1], "make") == 0) {
    for (unsigned number = 0; number < threads; number++) {
      if (make(number) != 0) {
        perror("making a file");
        return 1;
      }
    }
    return 0;
  }
  struct worker *workers = calloc(threads, sizeof *workers);
  for (unsigned number = 0; number < threads; number++) {
    workers[number].number = number;
    int failed = pthread_create(&workers[number].thread, NULL, work, &workers[number]);
    if (failed) {
      fprintf(stderr, "a thread: %s\n", strerror(failed));
      return 1;
    }
  }
  sleep((unsigned)atoi(argv[4]));
  atomic_store(&stop, 1);
  uint64_t rounds = 0, pages = 0, least = UINT64_MAX;
  for (unsigned number = 0; number < threads; number++) {
    pthread_join(workers[number].thread, NULL);
    rounds += workers[number].rounds;
    pages += workers[number].pages;
    if (workers[number].rounds < least) least = workers[number].rounds;
  }
  puts(atomic_load(&wrong) ? "a page was wrong" : "every page was right");
  fprintf(stderr, "rounds %llu, of the last thread %llu, pages %llu\n", (unsigned long long)rounds, (unsigned long long)least,
          (unsigned long long)pages);
  return 0;
}
