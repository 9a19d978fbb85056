/* A hole that mremap(2) leaves in a range of the program's, which unmaps the whole range later: `moved`. Threads that were there before
   touch pages in swap meanwhile, so that softfault needs more threads than at first. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define ALL (48 * MIB)
#define HOLE (6 * MIB)
#define THREADS 16

static pthread_barrier_t begin, end;
static unsigned char *all;
static long wrong[THREADS];

static void *reader(void *number)
{
    size_t part = (ALL / 2) / THREADS, first = (uintptr_t)number * part;
    pthread_barrier_wait(&begin);
    for (size_t at = first; at < first + part; at += 4096)
        wrong[(uintptr_t)number] += all[at] != (unsigned char)(at >> 12);
    pthread_barrier_wait(&end);
    return NULL;
}

static int mappings_within(uintptr_t from, uintptr_t to)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, stop;
        if (sscanf(line, "%lx-%lx", &start, &stop) == 2 && start < to && stop > from)
            count++;
    }
    if (maps)
        fclose(maps);
    return count;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (uintptr_t number = 0; number < THREADS; number++)
        if (pthread_create(&threads[number], NULL, reader, (void *)number))
            return 2;
    all = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < ALL; at += 4096)
        all[at] = at >> 12;
    unsigned char *part = all + ALL / 2;
    unsigned char *moved = mremap(part, HOLE, HOLE + MIB, MREMAP_MAYMOVE);
    printf("moved %d, %d\n", moved != MAP_FAILED && moved != part, moved[4096] == (unsigned char)((ALL / 2 + 4096) >> 12));
    munmap(moved, HOLE + MIB);
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    printf("in the hole %d\n", mappings_within((uintptr_t)part, (uintptr_t)part + HOLE));
    long sum = 0;
    for (int number = 0; number < THREADS; number++)
        sum += wrong[number], pthread_join(threads[number], NULL);
    printf("wrong %ld\n", sum);
    printf("munmap %d\n", munmap(all, ALL));
    all = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(all, 1, ALL);
    for (size_t at = 0; at < ALL; at++)
        sum += all[at] != 1;
    printf("wrong %ld\n", sum);
    return 0;
}
