/* Calls on taken memory for which the kernel refuses new mappings, since too much would be locked: `refused CASE FILE`. A call
   that is refused has changed nothing, and one that is done is done whole. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "answers.h"

#define PAGE ((size_t)4096)
#define BOTH (PROT_READ | PROT_WRITE)
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)

/* The limit below is none for who may lock what he likes. Before anything is mapped, so that no thread or process of softfault
   may either. */
static void be_an_ordinary_user(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) == 0) {
        data[0].effective &= ~(1u << CAP_IPC_LOCK);
        syscall(SYS_capset, &header, data);
    }
}

static unsigned char *taken_file(void)
{
    unsigned char *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    size_t sum = 0;
    for (size_t i = 0; i < size / 2; i += PAGE)
        sum += ((volatile unsigned char *)bytes)[i];
    return bytes;
}

/* Reads twice more than memory holds, so that all pages that were there are evicted. */
static void press(const unsigned char *bytes)
{
    size_t sum = 0;
    for (int round = 0; round < 2; round++)
        for (size_t i = 17 * PAGE; i < size; i += PAGE)
            sum += ((volatile const unsigned char *)bytes)[i];
}

/* From here on no more may be locked than is, and all that is mapped is. */
static void lock_what_comes(void)
{
    struct rlimit limit = {0, 0};
    limit.rlim_cur = limit.rlim_max = 64 << 10;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0 || mlockall(MCL_FUTURE) < 0)
        exit(3);
}

static size_t differ(const unsigned char *bytes, size_t from, size_t to)
{
    static unsigned char page[4096];
    size_t wrong = 0;
    for (size_t at = from; at < to; at += PAGE) {
        size_t count = pread(fd, page, PAGE, at);
        for (size_t i = 0; i < count; i++)
            wrong += bytes[at + i] != page[i];
    }
    return wrong;
}

static size_t other_than(const unsigned char *bytes, size_t count, int value)
{
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += ((volatile const unsigned char *)bytes)[i] != value;
    return wrong;
}

/* Something of the program's own over a part of a file's mapping. */
static void fixed(void)
{
    be_an_ordinary_user();
    unsigned char *bytes = taken_file();
    size_t wrong = 0;
    lock_what_comes();
    unsigned char *own = MAP_FAILED;
    /* A call that was refused has not made the place anybody else's. */
    for (int again = 0; again < 2 && own == MAP_FAILED; again++)
        own = mmap(bytes + 16 * PAGE, PAGE, BOTH, OWN | MAP_FIXED, -1, 0);
    if (own != MAP_FAILED)
        memset(own, 0x5a, PAGE);
    else if (errno != ENOMEM)
        wrong++;
    press(bytes);
    if (own == MAP_FAILED)
        wrong += differ(bytes, 0, size);
    else
        wrong += differ(bytes, 0, 16 * PAGE) + other_than(own, PAGE, 0x5a) + differ(bytes, 17 * PAGE, size);
    printf("wrong %zu\n", wrong);
}

/* A file's mapping is moved. */
static void moved(void)
{
    be_an_ordinary_user();
    unsigned char *bytes = taken_file();
    unsigned char *to = mmap(NULL, size, PROT_NONE, OWN | MAP_NORESERVE, -1, 0);
    size_t wrong = 0;
    lock_what_comes();
    unsigned char *there = mremap(bytes, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (there == MAP_FAILED)
        wrong += errno != ENOMEM;
    else
        bytes = there;
    press(bytes);
    printf("wrong %zu\n", wrong + differ(bytes, 0, size));
}

/* A part of a file's mapping goes. */
static void cut(void)
{
    be_an_ordinary_user();
    unsigned char *bytes = taken_file();
    size_t wrong = 0;
    lock_what_comes();
    if (munmap(bytes, 16 * PAGE) < 0)
        wrong += errno != ENOMEM;
    else
        wrong += msync(bytes, PAGE, MS_ASYNC) == 0;
    press(bytes);
    printf("wrong %zu\n", wrong + differ(bytes, 16 * PAGE, size));
}

/* A part of anonymous memory goes. */
static void part(void)
{
    be_an_ordinary_user();
    unsigned char *bytes = mmap(NULL, size, BOTH, OWN, -1, 0);
    size_t wrong = 0;
    memset(bytes, 7, size);
    lock_what_comes();
    size_t from = 64 * PAGE, to = 512 * PAGE;
    int done = munmap(bytes + from, to - from);
    wrong += other_than(bytes, from, 7) + other_than(bytes + to, size - to, 7);
    if (done < 0)
        wrong += other_than(bytes + from, to - from, 7);
    printf("unmapped %d, wrong %zu\n", done, wrong);
}

/* All of it goes. */
static void whole(void)
{
    be_an_ordinary_user();
    unsigned char *bytes = mmap(NULL, size, BOTH, OWN, -1, 0);
    memset(bytes, 7, size);
    lock_what_comes();
    printf("unmapped %d\n", munmap(bytes, size));
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    {"fixed", fixed}, {"moved", moved}, {"cut", cut}, {"part", part}, {"whole", whole},
};
#include "run_case.h"
