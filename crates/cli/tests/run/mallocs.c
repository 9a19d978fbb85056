/* Uses of malloc by programs: `mallocs CASE FILE`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

static void *(*volatile allocate)(size_t);
#define MIB ((size_t)1 << 20)
#define PAGE 4096

/* In a program that is not position-independent malloc has an address in the program by this. */
__attribute__((constructor)) static void take_address(void)
{
    allocate = malloc;
}

static void fill(void *block, size_t bytes, uint64_t seed)
{
    uint64_t *words = block;
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = (i + seed) * 0x9E3779B97F4A7C15u;
}

static size_t wrong(const void *block, size_t bytes, uint64_t seed)
{
    const uint64_t *words = block;
    size_t bad = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        bad += words[i] != (i + seed) * 0x9E3779B97F4A7C15u;
    return bad;
}

static size_t nonzero(const char *block, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += block[i] != 0;
    return count;
}

static void *need(void *block)
{
    if (!block)
        printf("no memory: %s\n", strerror(errno)), exit(3);
    return block;
}

/* Two budgets of blocks of several sizes, with small ones in between. */
static void blocks(void)
{
    void *large = need(malloc(12 * MIB)), *small[1000], *other = need(malloc(4 * MIB));
    errno = 77;
    for (int i = 0; i < 1000; i++)
        small[i] = need(malloc(i * 37)), memset(small[i], i, i * 37);
    void *zeros = need(calloc(3, MIB));
    printf("errno %d, usable %d %d\n", errno, malloc_usable_size(large) >= 12 * MIB, malloc_usable_size(small[9]) >= 9 * 37);
    printf("zeros %zu\n", nonzero(zeros, 3 * MIB));
    fill(large, 12 * MIB, 1), fill(other, 4 * MIB, 2), fill(zeros, 3 * MIB, 3);
    printf("wrong %zu %zu %zu\n", wrong(large, 12 * MIB, 1), wrong(other, 4 * MIB, 2), wrong(zeros, 3 * MIB, 3));
    for (int i = 0; i < 1000; i++)
        free(small[i]);
    free(large), free(NULL);
    printf("errno %d, wrong %zu\n", errno, wrong(other, 4 * MIB, 2));
    for (int i = 0; i < 20; i++) {
        free(zeros);
        zeros = need(calloc(1, 3 * MIB + i * 1000));
        printf("%zu ", nonzero(zeros, 3 * MIB + i * 1000));
        fill(zeros, 3 * MIB, 4);
    }
    free(zeros), free(other);
    printf("done\n");
}

/* A buffer that grows from little to much, and shrinks again. */
static void grows(void)
{
    size_t bytes = 1000, bad = 0;
    char *block = need(realloc(NULL, bytes));
    fill(block, bytes, 5);
    while (bytes < 12 * MIB) {
        size_t more = bytes * 13 / 10;
        block = need(realloc(block, more));
        bad += wrong(block, bytes, 5);
        fill(block, more, 5);
        bytes = more;
    }
    printf("grown: wrong %zu\n", bad);
    block = need(reallocarray(block, 2, 3 * MIB));
    printf("6 MiB: wrong %zu, usable %d\n", wrong(block, 6 * MIB, 5), malloc_usable_size(block) >= 6 * MIB);
    block = need(realloc(block, 7 * MIB));
    printf("7 MiB: wrong %zu\n", wrong(block, 6 * MIB, 5));
    block = need(realloc(block, 200000));
    printf("small: wrong %zu\n", wrong(block, 200000, 5));
    block = need(realloc(block, 2 * MIB));
    printf("large: wrong %zu\n", wrong(block, 200000, 5));
    printf("nothing %d\n", realloc(block, 0) == NULL);
}

static void aligned(void)
{
    void *block;
    size_t aligns[] = {16, 64, PAGE, 64 << 10, 2 * MIB, 32 * MIB};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        size_t align = aligns[i];
        int answer = posix_memalign(&block, align, 2 * MIB);
        printf("posix_memalign %d %zu\n", answer, (uintptr_t)block % align);
        fill(block, 2 * MIB, i);
        void *other = need(memalign(align, MIB + 1)), *third = need(aligned_alloc(align, align > MIB ? align : MIB));
        printf("memalign %zu %zu %d\n", (uintptr_t)other % align, (uintptr_t)third % align, malloc_usable_size(other) > MIB);
        fill(other, MIB, 7);
        block = need(realloc(block, 4 * MIB));
        printf("wrong %zu %zu\n", wrong(block, 2 * MIB, i), wrong(other, MIB, 7));
        free(block), free(third), free(other);
    }
    void *odd = need(valloc(MIB)), *pages = need(pvalloc(2 * MIB - 7));
    printf("valloc %zu %zu %d\n", (uintptr_t)odd % PAGE, (uintptr_t)pages % PAGE, malloc_usable_size(pages) >= 2 * MIB);
    free(odd), free(pages);
    /* Of the C library, and they begin with a page too. */
    posix_memalign(&block, PAGE, 5000);
    block = need(realloc(block, 9000));
    free(block);
    block = NULL;
    printf("odd %d %d\n", posix_memalign(&block, 24, MIB), block == NULL);
}

static volatile size_t huge = PTRDIFF_MAX;
static void refused(void)
{
    void *block = need(malloc(2 * MIB));
    fill(block, 2 * MIB, 1);
#define REFUSED(call) (errno = 0, printf("%d ", (call) == NULL), printf("%s\n", strerror(errno)))
    REFUSED(malloc(huge));
    REFUSED(malloc(huge + 5));
    REFUSED(malloc((size_t)1 << 46));
    REFUSED(calloc(huge / 2, 3));
    REFUSED(calloc((size_t)1 << 20, (size_t)1 << 26));
    REFUSED(realloc(block, huge));
    REFUSED(realloc(block, (size_t)1 << 46));
    REFUSED(reallocarray(block, huge, 3));
    REFUSED(memalign(PAGE, huge));
    void *none = &none;
    printf("%d\n", posix_memalign(&none, 64, (size_t)1 << 46));
    printf("wrong %zu\n", wrong(block, 2 * MIB, 1));
    free(block);
}

static volatile int done;
static void *allocates(void *number)
{
    uint64_t state = (uintptr_t)number * 1000003 + 17;
    size_t bad = 0, has[6] = {0};
    void *mine[6] = {0};
    for (int i = 0; i < 60; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t at = state >> 40, which = at % 6, bytes = (MIB / 4) + (at * 4096) % (2 * MIB);
        if (mine[which])
            bad += wrong(mine[which], has[which], which);
        if (at & 64)
            mine[which] = need(realloc(mine[which], bytes)), bad += wrong(mine[which], has[which] < bytes ? has[which] : bytes, which);
        else
            free(mine[which]), mine[which] = need(malloc(bytes));
        fill(mine[which], bytes, which);
        has[which] = bytes;
    }
    for (int i = 0; i < 6; i++)
        free(mine[i]);
    return (void *)bad;
}

static void *loads(void *unused)
{
    while (!done) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        if (library)
            dlsym(library, "cos"), dlclose(library);
        free(need(malloc(MIB)));
    }
    return NULL;
}

static void *in_handler;
static void before_fork(void) { free(in_handler), in_handler = need(calloc(1, MIB)); }
static void after_fork(void) { in_handler = need(realloc(in_handler, 2 * MIB)); }

/* Six threads that allocate, one that loads libraries, and forks meanwhile, whose children free their blocks. */
static void threads(void)
{
    pthread_t all[6], loader;
    void *bad, *block = need(malloc(3 * MIB));
    size_t sum = 0, died = 0;
    fill(block, 3 * MIB, 9);
    pthread_atfork(before_fork, after_fork, after_fork);
    pthread_create(&loader, NULL, loads, NULL);
    for (size_t i = 0; i < 6; i++)
        pthread_create(&all[i], NULL, allocates, (void *)i);
    for (int i = 0; i < 8; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            size_t bad = wrong(block, 3 * MIB, 9);
            free(block);
            block = need(malloc(2 * MIB));
            fill(block, 2 * MIB, 1);
            bad += wrong(block, 2 * MIB, 1);
            free(block), free(in_handler);
            _exit(bad != 0);
        }
        waitpid(child, &status, 0);
        died += status != 0;
    }
    for (size_t i = 0; i < 6; i++)
        pthread_join(all[i], &bad), sum += (size_t)bad;
    done = 1;
    pthread_join(loader, NULL);
    printf("wrong %zu, in the end %zu, children %zu\n", sum, wrong(block, 3 * MIB, 9), died);
    free(block);
}

/* A block's pages may be locked and protected like any. */
static void changed(void)
{
    for (int i = 0; i < 3; i++) {
        char *block = need(malloc(3 * MIB)), *page = (char *)(((uintptr_t)block + PAGE - 1) / PAGE * PAGE);
        fill(block, 3 * MIB, i);
        size_t locked = i == 2 ? 2 * MIB : 64 << 10;
        printf("%d ", mlock(page + (i == 1 ? MIB : 0), i == 0 ? 100 : locked));
        printf("%d ", mprotect(page + 2 * MIB, PAGE, PROT_READ));
        printf("%d ", mprotect(page + 2 * MIB, PAGE, PROT_READ | PROT_WRITE));
        printf("%d\n", madvise(page, 2 * MIB, MADV_HUGEPAGE));
        printf("wrong %zu\n", wrong(block, 3 * MIB, i));
        free(block);
        block = need(calloc(3, MIB));
        printf("zeros %zu\n", nonzero(block, 3 * MIB));
        free(block);
    }
}

/* A library whose initialiser needs the program's first blocks; the loader is locked meanwhile. `path` is the library. */
static void loads_first(void)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        printf("%s\n", dlerror()), exit(3);
    printf("library: wrong %zu\n", ((size_t (*)(void))dlsym(library, "wrong_words"))());
    dlclose(library);
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"blocks", blocks}, {"grows", grows}, {"aligned", aligned}, {"refused", refused}, {"threads", threads}, {"changed", changed},
    {"loads-first", loads_first},
};

#include "run_case.h"
