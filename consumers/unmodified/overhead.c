/* What calls cost that a preloaded library is in front of: one line with a name and nanoseconds of processor time a call for each, medians of
   21 rounds. `overhead FILE` */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 21
#define CALLS 2000

static double now(void)
{
    struct timespec time;
    /* What other programs take of the processor is not in it. */
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int less(const void *a, const void *b) { return *(const double *)a > *(const double *)b ? 1 : -1; }

static void say(const char *name, double *rounds)
{
    qsort(rounds, ROUNDS, sizeof *rounds, less);
    printf("%s %.1f\n", name, rounds[ROUNDS / 2]);
}

static void *volatile mapped[CALLS];

static void maps(const char *map, const char *unmap, int flags, int fd)
{
    double maps[ROUNDS], unmaps[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double begun = now();
        for (int i = 0; i < CALLS; i++)
            mapped[i] = mmap(NULL, 64 << 10, PROT_READ, flags, fd, 0);
        double between = now();
        for (int i = 0; i < CALLS; i++)
            munmap(mapped[i], 64 << 10);
        unmaps[round] = (now() - between) / CALLS;
        maps[round] = (between - begun) / CALLS;
    }
    say(map, maps), say(unmap, unmaps);
}

/* One block at a time, as most are allocated: what the C library keeps for the next is there. */
static void blocks(const char *name, size_t bytes, int calls)
{
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double begun = now();
        for (int i = 0; i < calls; i++)
            free(mapped[0] = malloc(bytes));
        rounds[round] = (now() - begun) / calls;
    }
    say(name, rounds);
}

int main(int count, char **arguments)
{
    int fd = count > 1 ? open(arguments[1], O_RDONLY) : -1;
    if (fd < 0)
        return 2;
    maps("mmap-anonymous", "munmap-anonymous", MAP_PRIVATE | MAP_ANONYMOUS, -1);
    maps("mmap-file", "munmap-file", MAP_PRIVATE, fd);
    blocks("malloc-free-64", 64, 400000);
    blocks("malloc-free-1MiB", 1 << 20, 2000);
    return 0;
}
