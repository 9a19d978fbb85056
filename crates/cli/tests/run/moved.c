/* The kernel puts mappings where a part of private memory was unmapped, and refuses to: `moved`. Prints the same under softfault and
   without. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "answers.h"
#include "touch.h"

#define UNIT ((size_t)1 << 20)
#define BOTH (PROT_READ | PROT_WRITE)

static unsigned char *anon(void *at, size_t bytes, int flags)
{
    return mmap(at, bytes, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static size_t wrong(const unsigned char *bytes, size_t count, int expected)
{
    size_t bad = 0;
    for (size_t i = 0; i < count; i++)
        bad += bytes[i] != expected;
    return bad;
}

/* What the program does with a mapping of 4 MiB at a place of its own. */
static void use(unsigned char *place, int expected)
{
    printf("wrong %zu\n", wrong(place, 4 * UNIT, expected));
    answer("mprotect", mprotect(place, UNIT, PROT_READ));
    answer("mprotect", mprotect(place, UNIT, BOTH));
    answer("madvise", madvise(place + UNIT, UNIT, MADV_NORMAL));
    answer("mlock", mlock(place, 4096));
    answer("munlock", munlock(place, 4096));
    memset(place, expected + 1, 4 * UNIT);
}

int main(void)
{
    unsigned char *all = anon(NULL, 16 * UNIT, 0), *other = anon(NULL, 4 * UNIT, 0);
    memset(all, 1, 16 * UNIT), memset(other, 2, 4 * UNIT);
    answer("munmap", munmap(all + 4 * UNIT, 8 * UNIT));
    /* Refused: nothing is there as before. */
    answer("size 0", (long)mremap(other, 4 * UNIT, 0, MREMAP_MAYMOVE | MREMAP_FIXED, all + 4 * UNIT));
    answer("flags", (long)mremap(other, 4 * UNIT, 4 * UNIT, MREMAP_FIXED, all + 4 * UNIT));
    answer("from nothing", (long)mremap(all + 4 * UNIT, UNIT, UNIT, MREMAP_MAYMOVE | MREMAP_FIXED, all + 6 * UNIT));
    printf("%s\n", touch(all + 4 * UNIT, 0));
    answer("mprotect", mprotect(all + 4 * UNIT, UNIT, BOTH));
    unsigned char *free = anon(all + 5 * UNIT, UNIT, MAP_FIXED_NOREPLACE);
    printf("free %d\n", free == all + 5 * UNIT);
    munmap(free, UNIT);
    unsigned char *moved = mremap(other, 4 * UNIT, 4 * UNIT, MREMAP_MAYMOVE | MREMAP_FIXED, all + 4 * UNIT);
    printf("moved %d\n", moved == all + 4 * UNIT);
    use(moved, 2);
    int segment = shmget(IPC_PRIVATE, 4 * UNIT, IPC_CREAT | 0600);
    unsigned char *shared = shmat(segment, all + 8 * UNIT, SHM_REMAP);
    shmctl(segment, IPC_RMID, NULL);
    printf("shared %d\n", shared == all + 8 * UNIT);
    use(shared, 0);
    /* Over what is there, half of it. */
    other = anon(NULL, 4 * UNIT, 0);
    memset(other, 7, 4 * UNIT);
    moved = mremap(other, 4 * UNIT, 4 * UNIT, MREMAP_MAYMOVE | MREMAP_FIXED, all + 2 * UNIT);
    printf("moved %d\n", moved == all + 2 * UNIT);
    use(moved, 7);
    printf("wrong %zu %zu %zu %zu\n", wrong(all, 2 * UNIT, 1), wrong(all + 6 * UNIT, 2 * UNIT, 3), wrong(shared, 4 * UNIT, 1), wrong(all + 12 * UNIT, 4 * UNIT, 1));
    /* The rest of the first mapping goes, and what was put into it stays. */
    answer("munmap", munmap(all, 2 * UNIT));
    answer("munmap", munmap(all + 12 * UNIT, 4 * UNIT));
    printf("%s %s\n", touch(all, 0), touch(all + 13 * UNIT, 0));
    printf("wrong %zu %zu %zu\n", wrong(moved, 4 * UNIT, 8), wrong(all + 6 * UNIT, 2 * UNIT, 3), wrong(shared, 4 * UNIT, 1));
    answer("munmap", munmap(all + 2 * UNIT, 6 * UNIT));
    answer("shmdt", shmdt(shared));
    printf("%s %s %s\n", touch(all + 2 * UNIT, 0), touch(all + 7 * UNIT, 1), touch(shared, 0));
    return 0;
}
