/* Address space that is reserved first and used part by part, as virtual machines and allocators use it: `reserve CASE FILE`.
 * Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

#define PAGE 4096
#define MB ((size_t)1 << 20)
#define BOTH (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
typedef unsigned char *place;

static void *must(void *mapped, const char *what)
{
    if (mapped == MAP_FAILED) {
        printf("%s: %s\n", what, strerror(errno));
        exit(3);
    }
    return mapped;
}

/* From a multiple of 2 MiB on, in a larger reservation that begins elsewhere. */
static place reserve(size_t bytes)
{
    place at = must(mmap(NULL, bytes + 4 * MB, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0), "reserve");
    if (munmap(at, PAGE))
        exit(3);
    return (place)(((uintptr_t)at + 2 * MB) & ~(2 * MB - 1));
}

static void commit(place at, size_t bytes)
{
    if (must(mmap(at, bytes, BOTH, ANONYMOUS | MAP_FIXED, -1, 0), "commit") != at)
        printf("committed elsewhere\n");
}

static void uncommit(place at, size_t bytes)
{
    if (must(mmap(at, bytes, PROT_NONE, ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0), "uncommit") != at)
        printf("uncommitted elsewhere\n");
}

static void fill(place at, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)at)[i] = word(i, seed);
}

static size_t wrong(place at, size_t bytes, uint64_t seed)
{
    size_t bad = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        bad += ((uint64_t *)at)[i] != (seed ? word(i, seed) : 0);
    return bad;
}

static void check(const char *what, place at, size_t bytes, uint64_t seed) { printf("%s: wrong %zu\n", what, wrong(at, bytes, seed)); }

#include "touch.h"

/* Whether the word there is that of `fill`. */
static int is_filled(place start, size_t at)
{
    return strcmp(touch(start + at, 0), "there") == 0 && *(uint64_t *)(start + at) == word(at / 8, 1);
}

/* A heap that grows by steps, shrinks and grows again. */
static void heap(void)
{
    place at = reserve(64 * MB);
    printf("reserved %s %s\n", touch(at, 0), touch(at + 33 * MB, 1));
    for (int step = 0; step < 16; step++) {
        commit(at + step * 2 * MB, 2 * MB);
        fill(at + step * 2 * MB, 2 * MB, 1 + step);
    }
    printf("behind %s\n", touch(at + 32 * MB, 0));
    for (int step = 0; step < 16; step++)
        check("step", at + step * 2 * MB, 2 * MB, 1 + step);
    uncommit(at + 4 * MB, 6 * MB);
    printf("uncommitted %s %s %s %s\n", touch(at + 4 * MB, 0), touch(at + 10 * MB - 1, 1), touch(at + 4 * MB - 1, 0), touch(at + 10 * MB, 1));
    at[10 * MB] = word(0, 6);
    commit(at + 6 * MB, 2 * MB);
    check("zeros", at + 6 * MB, 2 * MB, 0);
    printf("beside %s %s\n", touch(at + 6 * MB - 1, 0), touch(at + 8 * MB, 0));
    fill(at + 6 * MB, 2 * MB, 40);
    /* Over memory that is in use: zeros. */
    commit(at + 11 * MB, 2 * MB);
    check("renewed", at + 11 * MB, 2 * MB, 0);
    answer("advice", madvise(at + 14 * MB, 2 * MB, MADV_DONTNEED));
    check("given up", at + 14 * MB, 2 * MB, 0);
    check("first", at, 2 * MB, 1);
    check("again", at + 6 * MB, 2 * MB, 40);
    check("half", at + 10 * MB, MB, 6);
    for (int step = 8; step < 16; step++)
        check("step", at + step * 2 * MB, 2 * MB, 1 + step);
    answer("unmapped", munmap(at + 20 * MB, 4 * MB));
    printf("unmapped %s\n", touch(at + 20 * MB, 0));
    check("behind", at + 24 * MB, 2 * MB, 13);
    answer("all", munmap(at, 64 * MB));
    printf("all %s\n", touch(at, 0));
}

/* An allocator that aligns its reservation, and uses it by mprotect(2). */
static void protect(void)
{
    place start = reserve(40 * MB), at = (place)(((uintptr_t)start + 4 * MB) & ~(4 * MB - 1));
    answer("head", munmap(start, at - start));
    answer("tail", munmap(at + 32 * MB, start + 40 * MB - (at + 32 * MB)));
    answer("both", mprotect(at, 16 * MB, BOTH));
    check("zeros", at, 16 * MB, 0);
    fill(at, 16 * MB, 1);
    printf("behind %s\n", touch(at + 16 * MB, 1));
    /* What is in use already stays. */
    answer("more", mprotect(at + 8 * MB, 16 * MB, BOTH));
    check("zeros", at + 16 * MB, 8 * MB, 0);
    fill(at + 16 * MB, 8 * MB, 2);
    check("first", at, 16 * MB, 1);
    answer("none", mprotect(at + 4 * MB, 2 * MB, PROT_NONE));
    printf("none %s\n", touch(at + 4 * MB, 0));
    answer("both", mprotect(at + 4 * MB, 2 * MB, BOTH));
    check("all", at, 16 * MB, 1);
    answer("read", mprotect(at + 26 * MB, MB, PROT_READ));
    printf("read %s %s\n", touch(at + 26 * MB, 0), touch(at + 26 * MB, 1));
    answer("both", mprotect(at + 25 * MB, 3 * MB, BOTH));
    check("zeros", at + 25 * MB, 3 * MB, 0);
    answer("small", mprotect(at + 28 * MB, PAGE, BOTH));
    printf("small %s %s\n", touch(at + 28 * MB, 1), touch(at + 28 * MB + PAGE, 1));
    check("second", at + 16 * MB, 8 * MB, 2);
    answer("all", munmap(at, 32 * MB));
}

/* Other things come to be in a reservation. */
static void others(void)
{
    place at = reserve(32 * MB);
    commit(at, 64 << 10);
    at[0] = 1;
    commit(at + 8 * MB, 8 * MB);
    fill(at + 8 * MB, 8 * MB, 1);
    must(mmap(at + 10 * MB, 2 * MB, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0), "a file");
    must(mmap(at + 20 * MB, 2 * MB, PROT_READ, MAP_SHARED | MAP_FIXED, fd, PAGE), "a file");
    must(mmap(at + 24 * MB, 2 * MB, BOTH, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0), "shared");
    must(mmap(at + 28 * MB, MB, BOTH | PROT_EXEC, ANONYMOUS | MAP_FIXED, -1, 0), "code");
    at[28 * MB] = 7;
    answer("again", mprotect(at + 28 * MB, MB, BOTH));
    printf("code %d %d %d\n", at[0], at[28 * MB], at[28 * MB + 1]);
    size_t bad = 0;
    unsigned char *bytes = malloc(3 * MB);
    if (pread(fd, bytes, 3 * MB, 0) != (ssize_t)(3 * MB))
        exit(4);
    bad += memcmp(at + 10 * MB, bytes, 2 * MB) != 0;
    bad += memcmp(at + 20 * MB, bytes + PAGE, 2 * MB) != 0;
    check("below", at + 8 * MB, 2 * MB, 1);
    printf("files %zu\n", bad);
    commit(at + 10 * MB, 2 * MB);
    commit(at + 24 * MB, MB);
    check("zeros", at + 10 * MB, 2 * MB, 0);
    check("zeros", at + 24 * MB, MB, 0);
    /* Locked, and moved. */
    answer("lock", mlock(at + 8 * MB, 64 << 10));
    place to = reserve(16 * MB), moved = mremap(at + 8 * MB, MB, MB, MREMAP_MAYMOVE | MREMAP_FIXED, to + 4 * MB);
    printf("moved %d\n", moved == to + 4 * MB);
    check("moved", moved, MB, 1);
    printf("there %s %s\n", touch(at + 8 * MB, 0), touch(to + 5 * MB, 0));
    /* At a wanted place. */
    answer("all", munmap(at, 32 * MB));
    place hinted = mmap(at, 16 * MB, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0);
    printf("hint %d\n", hinted == at);
    commit(at, 16 * MB);
    check("zeros", at, 16 * MB, 0);
    place taken = mmap(at, 16 * MB, PROT_NONE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    printf("taken %d\n", taken == MAP_FAILED && errno == EEXIST);
    answer("wipeonfork", madvise(to, MB, MADV_WIPEONFORK));
    commit(to, 4 * MB);
    fill(to, 4 * MB, 3);
    fflush(stdout);
    if (fork() == 0) {
        check("child", to, 4 * MB, 3);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

/* Children go on with what was committed, and commit more. */
static void forks(void)
{
    place at = reserve(48 * MB), unused = reserve(16 * MB);
    commit(at + MB, 12 * MB);
    fill(at + MB, 12 * MB, 1);
    for (int i = 0; i < 2; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            check("child", at + MB, 12 * MB, 1);
            commit(at + 20 * MB, 8 * MB);
            check("child: zeros", at + 20 * MB, 8 * MB, 0);
            fill(at + 20 * MB, 8 * MB, 2);
            uncommit(at + 2 * MB, 4 * MB);
            answer("child", mprotect(at + 3 * MB, MB, BOTH));
            check("child: again", at + 3 * MB, MB, 0);
            commit(unused, 8 * MB);
            fill(unused, 8 * MB, 3);
            check("child: more", at + 20 * MB, 8 * MB, 2);
            check("child: unused", unused, 8 * MB, 3);
            fflush(stdout);
            if (fork() == 0) {
                check("grandchild", unused, 8 * MB, 3);
                printf("grandchild %s %s\n", touch(at + 2 * MB, 0), touch(at + 40 * MB, 0));
                commit(at + 32 * MB, 4 * MB);
                check("grandchild: zeros", at + 32 * MB, 4 * MB, 0);
                fflush(stdout);
                exit(0);
            }
            wait(NULL);
            exit(0);
        }
        waitpid(child, NULL, 0);
        printf("parent %s %s\n", touch(at + 20 * MB, 0), touch(unused, 0));
    }
    check("parent", at + MB, 12 * MB, 1);
    commit(at + 20 * MB, 8 * MB);
    check("parent: zeros", at + 20 * MB, 8 * MB, 0);
}

#define THREADS 8
static place shared;
static size_t bad[THREADS];
static void *work(void *argument)
{
    size_t own = (size_t)argument;
    place at = shared + own * 4 * MB;
    for (int round = 0; round < 6; round++) {
        size_t from = round % 3 * MB, bytes = MB + round % 2 * 512 * 1024;
        if (round & 1)
            commit(at + from, bytes);
        else
            bad[own] += mprotect(at + from, bytes, BOTH) != 0;
        bad[own] += wrong(at + from, bytes, 0);
        fill(at + from, bytes, own * 10 + round + 1);
        sched_yield();
        bad[own] += wrong(at + from, bytes, own * 10 + round + 1);
        if (round == 3)
            bad[own] += madvise(at + from, bytes, MADV_DONTNEED) != 0;
        else
            uncommit(at + from, bytes);
        if (round == 3)
            bad[own] += wrong(at + from, bytes, 0), uncommit(at + from, bytes);
    }
    return NULL;
}

/* All of it, from where it begins, and some of what is behind; children have none of it. */
static void whole(void)
{
    size_t bytes = 16 * MB;
    place start = must(mmap(NULL, bytes + 3 * PAGE, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0), "reserve"), at = start + PAGE;
    answer("front", munmap(start, PAGE));
    answer("dontfork", madvise(at, bytes + 2 * PAGE, MADV_DONTFORK));
    answer("both", mprotect(at, bytes + 2 * PAGE, BOTH));
    check("zeros", at, bytes + 2 * PAGE, 0);
    fill(at, bytes + 2 * PAGE, 1);
    check("all", at, bytes + 2 * PAGE, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* What is there now, if anything, has nothing to do with the parent: the child's mappings may be anywhere. */
        printf("child %d %d\n", is_filled(at, 0), is_filled(at, 8 * MB));
        place own = reserve(8 * MB);
        commit(own, 8 * MB);
        check("child: zeros", own, 8 * MB, 0);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    check("again", at, bytes + 2 * PAGE, 1);
    commit(at, bytes + 2 * PAGE);
    check("renewed", at, bytes + 2 * PAGE, 0);
}

/* Each thread in a part of its own. */
static void threads(void)
{
    pthread_t all[THREADS];
    shared = reserve(THREADS * 4 * MB);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&all[i], NULL, work, (void *)i);
    size_t sum = 0;
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL), sum += bad[i];
    printf("wrong %zu\n", sum);
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"heap", heap}, {"protect", protect}, {"others", others}, {"forks", forks}, {"whole", whole}, {"threads", threads},
};

#include "run_case.h"
