/* Private memory of which a part is protected, or lies behind the end of its file: `partly CASE FILE`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define BOTH (PROT_READ | PROT_WRITE)

#include "answers.h"

static unsigned char *anon(size_t bytes)
{
    unsigned char *memory = mmap(NULL, bytes, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 7, bytes);
    return memory;
}

/* A read into a page behind the end of the file is an error; then the mapping grows. The end is in the midst of a page table,
   which has other pages. */
static void grows(void)
{
    size_t before = 100 * PAGE, has = size - before, bytes = has + 256 * PAGE;
    unsigned char *memory = mmap(NULL, bytes, BOTH, MAP_PRIVATE, fd, before);
    for (size_t at = 0; at < has; at += PAGE)
        memory[at] = at / PAGE;
    answer("pread", pread(fd, memory + has + 16 * PAGE + 5, 3 * PAGE, 0));
    unsigned char *moved = mremap(memory, bytes, bytes + 512 * PAGE, MREMAP_MAYMOVE);
    answer("mremap", moved == MAP_FAILED ? -1 : 0);
    printf("%zu\n", sum(moved, has));
}

/* Each read by vectors moves the file's position past the bytes that it gave. */
static void position(struct iovec *parts, int count)
{
    for (int how = 0; how < 3; how++) {
        lseek(fd, 5, SEEK_SET);
        long got = how == 0 ? readv(fd, parts, count) : how == 1 ? preadv2(fd, parts, count, -1, 0) : syscall(SYS_readv, fd, parts, count);
        answer("vectors", got);
        answer("position", lseek(fd, 0, SEEK_CUR));
    }
}

/* Reads into memory of which the second half may not be written to, or not be touched. */
static void is_protected(int protection)
{
    unsigned char *memory = anon(1024 * PAGE), *half = memory + 512 * PAGE;
    answer("mprotect", mprotect(half, 256 * PAGE, protection));
    answer("pread", pread(fd, half - PAGE, 300 * PAGE, 0));
    answer("pread", pread(fd, half - 300 * PAGE - 5, 400 * PAGE, 11));
    answer("pread", pread(fd, half, 10, 0));
    struct iovec parts[] = {{half - 100, 100}, {half, 100}};
    answer("preadv", preadv(fd, parts, 2, 0));
    answer("lseek", lseek(fd, 0, SEEK_SET));
    answer("read", read(fd, half - PAGE, 3 * PAGE));
    answer("lseek", lseek(fd, 0, SEEK_CUR));
    position(parts, 2);
    struct iovec one[] = {{half - 100, 200}}, swapped[] = {{half, 50}, {memory, 50}};
    position(one, 1);
    position(swapped, 2);
    int ends[2];
    if (pipe(ends) < 0 || write(ends[1], memory, 10) != 10)
        exit(2);
    answer("pipe", read(ends[0], half, 10));
    mprotect(half, 256 * PAGE, BOTH);
    printf("%zu\n", sum(memory, 1024 * PAGE));
}

static void read_only(void) { is_protected(PROT_READ); }
static void closed(void) { is_protected(PROT_NONE); }

/* Arguments that are invalid are so also where nothing is mapped. */
static void invalid(void)
{
    unsigned char *memory = anon(1024 * PAGE), *file = mmap(NULL, size, BOTH, MAP_PRIVATE, fd, 0);
    answer("remove", madvise(memory, PAGE, MADV_REMOVE));
    answer("remove", madvise(file, PAGE, MADV_REMOVE));
    munmap(memory + 256 * PAGE, 256 * PAGE);
    for (size_t first = 0; first < 512; first += 255) {
        unsigned char *at = memory + first * PAGE;
        static const int ADVICE[] = {-1, 77, MADV_REMOVE, MADV_NORMAL, MADV_DONTNEED, MADV_NOHUGEPAGE};
        for (size_t i = 0; i < sizeof ADVICE / sizeof *ADVICE; i++)
            answer("madvise", madvise(at, 500 * PAGE, ADVICE[i]));
        answer("mprotect", mprotect(at, 500 * PAGE, 0x20));
        answer("mprotect", mprotect(at, 500 * PAGE, PROT_GROWSDOWN | PROT_GROWSUP));
        answer("mprotect", mprotect(at, 500 * PAGE, BOTH));
        answer("mlock2", mlock2(at, 300 * PAGE, 64));
        answer("mlock2", mlock2(at, 300 * PAGE, 0));
    }
    printf("%zu\n", sum(memory + 512 * PAGE, 512 * PAGE));
}

/* The same by a device, in memory that was forked. */
static void direct(void)
{
    unsigned char *memory = anon(1024 * PAGE), *half = memory + 512 * PAGE;
    int past = open(path, O_RDONLY | O_DIRECT);
    mprotect(half, 256 * PAGE, PROT_READ);
    if (fork() == 0)
        _exit(0);
    wait(NULL);
    /* Some kernels answer with the bytes that had a place, others with an error. */
    answer("more", pread(past, half - PAGE, 300 * PAGE, 0) > (ssize_t)PAGE);
    answer("pread", pread(past, half, PAGE, 0));
    printf("%zu\n", sum(half, 512 * PAGE));
}

/* A pipe whose reads take a packet each: one call takes all of it, into both vectors. */
static void packets(void)
{
    unsigned char *memory = anon(1024 * PAGE);
    int ends[2];
    /* The flag of the end to read from says nothing, but may be set. */
    if (pipe2(ends, O_DIRECT) < 0 || fcntl(ends[0], F_SETFL, O_DIRECT) < 0)
        exit(2);
    alarm(30);
    struct iovec parts[] = {{memory, 100}, {memory + 512 * PAGE, 3900}};
    for (int i = 0; i < 2; i++) {
        answer("write", write(ends[1], memory + 700 * PAGE, 4000 - i * 3900));
        answer("readv", readv(ends[0], parts, 2));
    }
}

/* Private memory comes to be where windows of files were that nobody maps any more. */
static void reused(void)
{
    enum { MAPS = 6, PAGES = 512 };
    unsigned char *maps[MAPS];
    char name[4096];
    for (int i = 0; i < MAPS; i++) {
        snprintf(name, sizeof name, "%s.copy%d", path, i);
        int copy = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        char *bytes = malloc(PAGES * PAGE);
        memset(bytes, i, PAGES * PAGE);
        if (copy < 0 || write(copy, bytes, PAGES * PAGE) != (ssize_t)(PAGES * PAGE))
            exit(2);
        free(bytes);
        close(copy);
        int again = open(name, O_RDONLY);
        /* The engine does not keep windows of files without a name for long. */
        unlink(name);
        maps[i] = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, again, 0);
        printf("%d\n", maps[i][5 * PAGE]);
        munmap(maps[i], PAGES * PAGE);
        close(again);
    }
    /* More than the budget: the pages of files go, and their windows. */
    unsigned char *more = anon(4096 * PAGE);
    for (int i = 0; i < MAPS; i++) {
        maps[i] = anon(PAGES * PAGE);
        munmap(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0), size);
    }
    /* A call over a place is what makes the windows' marks go. */
    munmap(more, 16 * PAGE);
    unsigned char *to = mmap(NULL, PAGES * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < MAPS; i++)
        answer("mremap", mremap(maps[i] + 100 * PAGE, 10 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + i * 20 * PAGE) == MAP_FAILED ? -1 : 0);
    fflush(stdout);
    if (fork() == 0) {
        for (int i = 0; i < MAPS; i++)
            printf("%zu\n", sum(to + i * 20 * PAGE, 10 * PAGE));
        exit(0);
    }
    int status;
    wait(&status);
    printf("%d\n", status);
}

/* A part was moved away by the kernel: other memory comes to be where it was, amid the rest. */
static void vacated(void)
{
    enum { MAPS = 12 };
    unsigned char *memory = anon(9216 * PAGE), *part = memory + 512 * PAGE, *maps[MAPS];
    unsigned char *to = mmap(NULL, 8192 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    answer("mprotect", mprotect(part, 8192 * PAGE, PROT_READ));
    answer("mremap", mremap(part, 8192 * PAGE, 8192 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    int is_within = 0;
    for (int i = 0; i < MAPS; i++) {
        maps[i] = anon(512 * PAGE);
        is_within |= maps[i] >= memory && maps[i] < memory + 9216 * PAGE;
        memset(maps[i], i, 512 * PAGE);
    }
    /* With softfault none of them is. */
    if (!is_within && !getenv("LD_PRELOAD"))
        exit(2);
    for (int child = 0; child < 2; child++) {
        if (fork() == 0) {
            for (int i = 0; i < MAPS; i++)
                printf("%zu\n", sum(maps[i], 512 * PAGE));
            if (child == 0)
                printf("%zu %zu\n", sum(memory, 512 * PAGE), sum(memory + 8704 * PAGE, 512 * PAGE));
            printf("%zu\n", sum(to, 8192 * PAGE));
            exit(0);
        }
        int status;
        wait(&status);
        printf("%d\n", status);
        munmap(memory, 512 * PAGE);
        munmap(memory + 8704 * PAGE, 512 * PAGE);
        memory = to;
    }
    for (int i = 0; i < MAPS; i++)
        printf("%zu\n", sum(maps[i], 512 * PAGE));
}

/* Reads into memory of which the first pages are the kernel's, and the rest is not there: none of them is cut short. */
static void straddled(void)
{
    size_t bytes = 4096 * PAGE;
    unsigned char *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at = start + PAGE;
    munmap(start, PAGE);
    answer("mprotect", mprotect(at, bytes - PAGE, BOTH));
    answer("pread", pread(fd, at + 11, size, 0));
    printf("%zu\n", sum(at, bytes - PAGE));
    answer("madvise", madvise(at, bytes - PAGE, MADV_DONTNEED));
    answer("read", read(fd, at, size));
    printf("%zu\n", sum(at, bytes - PAGE));
    answer("madvise", madvise(at, bytes - PAGE, MADV_DONTNEED));
    struct iovec parts[] = {{at + 7, 5000}, {at + 100 * PAGE, size - 5000}};
    answer("preadv", preadv(fd, parts, 2, 0));
    printf("%zu\n", sum(at, bytes - PAGE));
}

/* A file that answers once, at its beginning, is read into the kernel's memory and the engine's by one call. */
static void small(void)
{
    size_t bytes = 4096 * PAGE;
    unsigned char *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    munmap(start, PAGE);
    mprotect(start + PAGE, bytes - PAGE, BOTH);
    /* Where the engine's begins. */
    unsigned char *edge = (unsigned char *)(((size_t)start + (2 << 20)) & ~(size_t)((2 << 20) - 1));
    int once = open("/proc/sys/kernel/pid_max", O_RDONLY);
    for (int before = 0; before < 4; before++) {
        lseek(once, 0, SEEK_SET);
        madvise(start + PAGE, bytes - PAGE, MADV_DONTNEED);
        answer("read", read(once, edge - before, 100));
        printf("%s", edge - before);
    }
}

/* Reads by a thread that goes on when the first has ended. */
static void *goes_on(void *first)
{
    pthread_join(*(pthread_t *)first, NULL);
    straddled();
    exit(0);
}

static void without_the_first(void)
{
    static pthread_t first, other;
    first = pthread_self();
    pthread_create(&other, NULL, goes_on, &first);
    pthread_exit(NULL);
}

/* How a child ends that reads 512 pages from there on. */
static void child_reads(const char *what, const unsigned char *from)
{
    int status;
    fflush(stdout);
    if (fork() == 0) {
        printf("%s %zu\n", what, sum(from, 512 * PAGE));
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    printf("%s: %x\n", what, status);
}

/* Advice that the kernel refuses for the file in the middle: what is in front of that has it, and what is behind has not. */
static void refused(void)
{
    unsigned char *memory = anon(1024 * PAGE), *middle = memory + 512 * PAGE;
    answer("mmap", mmap(middle, 256 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == middle);
    answer("wipeonfork", madvise(memory, 1024 * PAGE, MADV_WIPEONFORK));
    child_reads("in front", memory);
    child_reads("behind", middle);
    answer("munmap", munmap(middle, 256 * PAGE));
    answer("wipeonfork", madvise(memory, 1024 * PAGE, MADV_WIPEONFORK));
    if (fork() == 0) {
        printf("behind a hole %zu\n", sum(middle + 256 * PAGE, 256 * PAGE));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

/* Of address space with MADV_DONTFORK children do not have what mprotect takes into use, and have new mappings. */
static void childless(void)
{
    enum { NEW = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, RESERVED = 8192 };
    unsigned char *start = mmap(NULL, RESERVED * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *mapped = start + 1024 * PAGE, *opened = start + 2048 * PAGE, *anew = start + 3072 * PAGE, *locked = start + 4096 * PAGE;
    answer("dontfork", madvise(start, RESERVED * PAGE, MADV_DONTFORK));
    answer("reserved anew", mmap(anew, 512 * PAGE, PROT_NONE, NEW | MAP_NORESERVE, -1, 0) == anew);
    answer("mapped", mmap(mapped, 512 * PAGE, BOTH, NEW, -1, 0) == mapped);
    answer("opened", mprotect(opened, 512 * PAGE, BOTH));
    answer("opened", mprotect(anew, 512 * PAGE, BOTH));
    answer("opened", mprotect(locked, 512 * PAGE, BOTH));
    memset(mapped, 1, 512 * PAGE);
    memset(opened, 2, 512 * PAGE);
    memset(anew, 3, 512 * PAGE);
    memset(locked, 4, 512 * PAGE);
    /* The kernel's from here on. */
    answer("mprotect", mprotect(locked, 512 * PAGE, PROT_READ));
    child_reads("mapped", mapped);
    child_reads("opened", opened);
    child_reads("reserved anew", anew);
    child_reads("locked", locked);
    answer("dofork", madvise(opened, 512 * PAGE, MADV_DOFORK));
    child_reads("opened", opened);
    printf("%zu %zu %zu %zu\n", sum(mapped, 512 * PAGE), sum(opened, 512 * PAGE), sum(anew, 512 * PAGE), sum(locked, 512 * PAGE));
}

/* Arrays of poll(2) of which the end may not be written to, or is not there; also at odd addresses. */
static void polled_before(unsigned char *end)
{
    int ends[2];
    if (pipe(ends) < 0 || write(ends[1], "x", 1) != 1)
        exit(2);
    for (int odd = 0; odd < 3; odd++) {
        struct timespec none = {0, 0};
        struct pollfd one = {ends[0], POLLIN, 77}, *all = (struct pollfd *)(end - 2 * sizeof *all + 3 * odd);
        for (int call = 0; call < 4; call++) {
            memcpy(all, &one, sizeof one);
            memcpy(all + 1, &one, odd ? sizeof one - 3 * odd : sizeof one);
            madvise(end - 64 * PAGE, 64 * PAGE, MADV_PAGEOUT);
            answer("poll", call == 0 ? poll(all, 2, 0) : call == 1 ? poll(all, 4, 0) : call == 2 ? ppoll(all, 4, &none, NULL) : syscall(SYS_ppoll, all, 4, &none, NULL, 8));
            memcpy(&one, all, sizeof one);
            printf("%d\n", one.revents);
            one.revents = 77;
        }
    }
}

static void polled(void)
{
    unsigned char *memory = anon(1024 * PAGE);
    mprotect(memory + 256 * PAGE, 16 * PAGE, PROT_READ);
    mprotect(memory + 512 * PAGE, 16 * PAGE, PROT_NONE);
    munmap(memory + 768 * PAGE, 16 * PAGE);
    for (size_t at = 256; at < 1024; at += 256)
        polled_before(memory + at * PAGE);
    printf("%zu\n", sum(memory, 128 * PAGE));
}

static void moved(const char *what, void *to) { answer(what, to == MAP_FAILED ? -1 : 0); }

/* mremap(2) of a range that is not one mapping for the kernel: it does not grow, and can be cut. */
static void spans(void)
{
    for (int how = 0; how < 4; how++) {
        for (int call = 0; call < 5; call++) {
            unsigned char *memory = anon(1024 * PAGE), *middle = memory + 512 * PAGE;
            answer("cut", how == 0 ? mprotect(middle, PAGE, PROT_READ) : how == 1 ? mprotect(middle, PAGE, PROT_NONE) : how == 2 ? munmap(middle, PAGE) : madvise(middle, PAGE, MADV_DONTFORK));
            if (call == 0)
                moved("grow", mremap(memory, 1024 * PAGE, 2048 * PAGE, MREMAP_MAYMOVE));
            else if (call == 1)
                moved("grow there", mremap(memory, 1024 * PAGE, 1025 * PAGE, 0));
            else if (call == 2)
                moved("in front", mremap(memory, 1024 * PAGE, 256 * PAGE, 0));
            else if (call == 3)
                moved("behind", mremap(memory, 1024 * PAGE, 768 * PAGE, MREMAP_MAYMOVE));
            else
                moved("the same", mremap(memory, 1024 * PAGE, 1024 * PAGE, MREMAP_MAYMOVE));
            printf("%zu\n", sum(memory, 256 * PAGE));
        }
    }
}

static void handle(int number) { (void)number; }

/* A signal that was handled is not blocked any more. */
static void handled(void)
{
    sigset_t set;
    anon(1024 * PAGE);
    signal(SIGBUS, handle);
    answer("raise", raise(SIGBUS));
    sigprocmask(SIG_BLOCK, NULL, &set);
    answer("blocked", sigismember(&set, SIGBUS));
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {{"grows", grows}, {"read-only", read_only}, {"closed", closed}, {"invalid", invalid}, {"direct", direct}, {"packets", packets}, {"polled", polled}, {"spans", spans}, {"handled", handled}, {"reused", reused}, {"vacated", vacated}, {"childless", childless}, {"straddled", straddled}, {"small", small}, {"without-the-first", without_the_first}, {"refused", refused}};
#include "run_case.h"
