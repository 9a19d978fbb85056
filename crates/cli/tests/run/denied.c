/* Calls on taken memory, for which the kernel refuses one call of softfault's: `denied CASE FILE`. A call that is refused has changed
   nothing, and one that is done is done whole. The filter's calls are none that the program makes alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "answers.h"
#include "touch.h"

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define BOTH (PROT_READ | PROT_WRITE)
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)

/* From here on this thread's calls of that number are ENOMEM whose argument of this place is so large. */
static void refuse(unsigned call, unsigned place, unsigned value)
{
    unsigned at = offsetof(struct seccomp_data, args) + 8 * place;
    struct sock_filter filter[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, call},
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, at}, {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOMEM}, {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {6, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        exit(3);
}

/* From here on the process has hardly more addresses than now. */
static void limit_addresses(size_t more)
{
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%lu", &pages) != 1)
        exit(3);
    fclose(statm);
    struct rlimit limit = {pages * PAGE + more, pages * PAGE + more};
    if (setrlimit(RLIMIT_AS, &limit) < 0)
        exit(3);
}

static unsigned char *anon(size_t bytes) { return mmap(NULL, bytes, BOTH, OWN, -1, 0); }

static void fill(unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = i * 7 + (i >> 12) * 13 + 1;
}

static size_t wrong(const unsigned char *bytes, size_t from, size_t to)
{
    size_t bad = 0;
    for (size_t i = from; i < to; i++)
        bad += bytes[i] != (unsigned char)(i * 7 + (i >> 12) * 13 + 1);
    return bad;
}

/* Memory that is only read grows, and has to move for it: it cannot be made read-only where it is then. */
static void grows(void)
{
    unsigned char *bytes = anon(8 * MIB);
    fill(bytes, 8 * MIB);
    answer("mprotect", mprotect(bytes, 8 * MIB, PROT_READ));
    refuse(SYS_mprotect, 2, PROT_READ);
    unsigned char *longer = mremap(bytes, 8 * MIB, 64 * MIB, MREMAP_MAYMOVE);
    if (longer != MAP_FAILED)
        bytes = longer;
    printf("wrong %zu\n", wrong(bytes, 0, 8 * MIB));
    answer("munmap", munmap(bytes, longer == MAP_FAILED ? 8 * MIB : 64 * MIB));
    printf("%s\n", touch(bytes, 0));
}

/* Taken memory and three pages in front of it are unmapped by one call, which cannot unmap these. */
static void unmaps_both(unsigned char *taken, size_t bytes, size_t (*bad)(const unsigned char *))
{
    unsigned char *plain = mmap(taken - 3 * PAGE, 3 * PAGE, BOTH, OWN | MAP_FIXED_NOREPLACE, -1, 0);
    if (plain != taken - 3 * PAGE)
        exit(3);
    memset(plain, 9, 3 * PAGE);
    refuse(SYS_munmap, 1, 3 * PAGE);
    int done = munmap(plain, 3 * PAGE + bytes);
    size_t wrong = done < 0 && errno != ENOMEM;
    if (done < 0)
        wrong += plain[0] != 9 || bad(taken) != 0;
    else
        wrong += strcmp(touch(plain, 0), "SIGSEGV") != 0 || strcmp(touch(taken, 0), "SIGSEGV") != 0;
    printf("wrong %zu\n", wrong);
}

static size_t bad_memory(const unsigned char *bytes) { return wrong(bytes, 0, 8 * MIB); }

static void unmaps_memory(void)
{
    unsigned char *bytes = anon(8 * MIB);
    fill(bytes, 8 * MIB);
    unmaps_both(bytes, 8 * MIB, bad_memory);
}

static size_t bad_file(const unsigned char *bytes)
{
    static unsigned char page[4096];
    size_t bad = 0;
    for (size_t at = 0; at < size; at += PAGE) {
        size_t count = pread(fd, page, PAGE, at);
        bad += memcmp(bytes + at, page, count) != 0;
    }
    return bad;
}

static void unmaps_file(void)
{
    unmaps_both(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0), size, bad_file);
}

/* There are no addresses for a second mapping as large as that which takes the place of another. */
static void fixed(void)
{
    unsigned char *bytes = anon(32 * MIB);
    fill(bytes, 32 * MIB);
    limit_addresses(4 * MIB);
    answer("mmap", mmap(bytes + MIB, 30 * MIB, PROT_READ, OWN | MAP_FIXED, -1, 0) == bytes + MIB ? 0 : -1);
    size_t zeros = 0;
    for (size_t i = MIB; i < 31 * MIB; i++)
        zeros += bytes[i] == 0;
    printf("zeros %zu, wrong %zu\n", zeros, wrong(bytes, 0, MIB) + wrong(bytes, 31 * MIB, 32 * MIB));
    /* Refused, it replaces nothing. */
    answer("mmap", mmap(bytes + 31 * MIB, MIB, PROT_READ, OWN | MAP_FIXED | MAP_HUGETLB | 63u << MAP_HUGE_SHIFT, -1, 0) == MAP_FAILED ? 0 : -1);
    answer("mmap", mmap(bytes + 31 * MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED ? 0 : -1);
    printf("wrong %zu\n", wrong(bytes, 31 * MIB, 32 * MIB));
}

/* What comes into memory that is not there, by a call that has no memory for it elsewhere: refused, it has consumed nothing. */
#define SOME ((size_t)5000)
#define FEW ((size_t)200)
static int pair[2];

/* A datagram that receives into memory that was never touched. */
static size_t lost(const char *how, unsigned char *to)
{
    static unsigned char packet[SOME], other[SOME];
    struct iovec vector = {to, SOME};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    fill(packet, SOME);
    ssize_t got = send(pair[0], packet, SOME, 0);
    if (got != SOME)
        return 1;
    got = *how == 'r' ? read(pair[1], to, SOME) : *how == 'v' ? readv(pair[1], &vector, 1) : *how == 'm' ? recvmsg(pair[1], &message, 0) : recv(pair[1], to, SOME, MSG_DONTWAIT);
    if (got < 0 && errno == ENOMEM) {
        got = recv(pair[1], other, SOME, MSG_DONTWAIT);
        to = other;
    }
    return got != SOME || wrong(to, 0, SOME) != 0;
}

static size_t same_byte(const unsigned char *bytes, size_t count)
{
    size_t same = 0;
    for (size_t i = 64; i < count; i++)
        same += memcmp(bytes, bytes + i, 16) == 0;
    return same;
}

static void receives(void)
{
    static unsigned char page[SOME];
    unsigned char *bytes = anon(8 * MIB), *to = bytes;
    void (*fill_random)(void *, size_t) = dlsym(RTLD_DEFAULT, "arc4random_buf");
    FILE *stream = fopen(path, "r");
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    refuse(SYS_mmap, 1, SOME);
    refuse(SYS_mmap, 1, FEW);
    for (const char *how = "rvmc"; *how; how++, to += 4 * PAGE)
        printf("lost %zu\n", lost(how, to));
    if (fill_random)
        fill_random(to, SOME);
    else
        syscall(SYS_getrandom, page, SOME, 0), memcpy(to, page, SOME);
    printf("same %zu\n", same_byte(to, SOME)), to += 4 * PAGE;
    answer("getrandom", getrandom(to, SOME, 0));
    printf("same %zu\n", same_byte(to, SOME)), to += 4 * PAGE;
    answer("getentropy", getentropy(to, FEW));
    printf("same %zu\n", same_byte(to, FEW)), to += 4 * PAGE;
    answer("pread", pread(fd, page, SOME, 3 * PAGE));
    answer("pread", pread(fd, to, SOME, 3 * PAGE));
    printf("differ %d\n", memcmp(to, page, SOME) != 0), to += 4 * PAGE;
    answer("lseek", lseek(fd, 3 * PAGE, SEEK_SET));
    answer("read", read(fd, to, SOME));
    printf("differ %d\n", memcmp(to, page, SOME) != 0), to += 4 * PAGE;
    fseek(stream, 3 * PAGE, SEEK_SET);
    answer("fread", fread(to, 1, SOME, stream));
    printf("differ %d\n", memcmp(to, page, SOME) != 0);
}

/* Memory is given back, and softfault's lists grow by that: their memory is a multiple of 64 KiB, and refused. */
static void gives_back(void)
{
    unsigned char *bytes = anon(8 * MIB);
    for (size_t at = 0; at < 8 * MIB; at += PAGE)
        bytes[at] = at >> 12;
    for (unsigned units = 1; units <= 4; units++)
        refuse(SYS_mmap, 1, units << 16);
    size_t failed = 0, bad = 0;
    for (size_t at = 0; at < 8 * MIB; at += 2 * PAGE)
        failed += munmap(bytes + at, PAGE) < 0;
    for (size_t at = PAGE; at < 8 * MIB; at += 2 * PAGE)
        bad += bytes[at] != (unsigned char)(at >> 12);
    printf("failed %zu, wrong %zu\n", failed, bad);
    answer("munmap", munmap(bytes, 8 * MIB));
    printf("%s\n", touch(bytes, 0));
}

static void *frees_refused(void *block)
{
    refuse(SYS_madvise, 2, MADV_DOFORK);
    free(block);
    return NULL;
}

/* A block that a thread cannot unmap goes with the next that is freed: only that thread is refused anything. */
static void frees(void)
{
    unsigned char *first = malloc(8 * MIB), *other = malloc(8 * MIB);
    pthread_t thread;
    memset(first, 1, 8 * MIB), memset(other, 2, 8 * MIB);
    pthread_create(&thread, NULL, frees_refused, first);
    pthread_join(thread, NULL);
    free(other);
    printf("%s %s\n", touch(first, 0), touch(other, 0));
}

/* A thread whose stack is taken memory gives memory back, and no other thread can be started to hand its stack over. */
static size_t refused;
static void *gives_back_on_stack(void *bytes)
{
    volatile unsigned char *other = bytes;
    size_t wrong = 0;
    /* As the C library calls them, of which the second is older. */
    refuse(SYS_clone3, 1, 88);
    refuse(SYS_clone, 0, 0x3d0f00);
    for (size_t at = 0; at < 4 * MIB; at += MIB / 4) {
        /* More than memory holds: what the stack had below this is evicted. */
        for (size_t i = 4 * MIB; i < 36 * MIB; i += PAGE)
            other[i]++;
        int done = munmap((unsigned char *)other + at, MIB / 8);
        refused += done < 0;
        wrong += done < 0 && (errno != ENOMEM || other[at] != 3);
        wrong += other[at + MIB / 8] != 3;
    }
    return (void *)wrong;
}

static void on_stack(void)
{
    pthread_attr_t how;
    pthread_t thread;
    void *wrong = NULL;
    unsigned char *stack = anon(4 * MIB), *other = anon(36 * MIB);
    memset(other, 3, 4 * MIB);
    pthread_attr_init(&how);
    pthread_attr_setstack(&how, stack, 4 * MIB);
    if (pthread_create(&thread, &how, gives_back_on_stack, other) != 0)
        exit(3);
    pthread_join(thread, &wrong);
    printf("refused %zu, wrong %zu\n", refused, (size_t)wrong);
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    {"grows", grows}, {"unmaps-memory", unmaps_memory}, {"unmaps-file", unmaps_file}, {"fixed", fixed}, {"receives", receives}, {"gives-back", gives_back}, {"frees", frees}, {"on-stack", on_stack},
};
#include "run_case.h"
