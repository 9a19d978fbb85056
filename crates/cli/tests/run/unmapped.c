/* Places that the program has given up, and what it maps there; calls that are several in the library: `unmapped CASE FILE`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BOTH (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#include "answers.h"

static void *must(void *mapped)
{
    if (mapped == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return mapped;
}

static unsigned char *part(size_t at, size_t bytes)
{
    return must(mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, at));
}

/* Reads another file of more than the budget: pages of before are evicted. */
static void press(void)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.other", path);
    int other = open(name, O_RDONLY);
    unsigned char *mapped = must(mmap(NULL, 16 * MIB, PROT_READ, MAP_SHARED, other, 0));
    printf("other %zu\n", sum(mapped, 16 * MIB));
    munmap(mapped, 16 * MIB);
    close(other);
}

static void is_all(const unsigned char *memory, size_t bytes, int value, const char *what)
{
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += memory[i] != value;
    printf("%s: %zu wrong\n", what, wrong);
}

/* Unmapping what is not mapped is no error, and has no effect. */
static void twice(void)
{
    for (int round = 0; round < 4; round++) {
        unsigned char *file = part(0, size);
        printf("file %zu\n", sum(file, size));
        answer("munmap", munmap(file, size));
        answer("munmap", munmap(file, size));
        unsigned char *memory = must(mmap(NULL, size, BOTH, ANON, -1, 0));
        memset(memory, 7, size);
        file = part(0, size);
        printf("apart %d, file %zu\n", file + size <= memory || memory + size <= file, sum(file, size));
        press();
        is_all(memory, size, 7, "memory");
        munmap(file, size);
        is_all(memory, size, 7, "memory");
        munmap(memory, size);
    }
}

/* Calls on a place that is no mapping any more are errors, and the file is as it was when it is mapped again. */
static void gone(void)
{
    for (int round = 0; round < 5; round++) {
        unsigned char *file = part(0, size);
        printf("file %zu\n", sum(file, size));
        munmap(file, size);
        answer("call", round == 0   ? mprotect(file, size, BOTH)
                       : round == 1 ? madvise(file, size, MADV_DONTNEED)
                       : round == 2 ? mlock(file, size)
                       : round == 3 ? madvise(file, size, MADV_POPULATE_READ)
                                    : (mremap(file, size, 2 * size, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0));
    }
    unsigned char *file = part(0, size);
    printf("file %zu\n", sum(file, size));
}

static int calls_gone(int call, unsigned char *at, size_t bytes, unsigned char *pages)
{
    switch (call) {
    case 0: return msync(at, bytes, MS_ASYNC);
    case 1: return msync(at, bytes, 77);
    case 2: return mincore(at, bytes, pages);
    case 3: return munlock(at + 5, bytes - 5);
    case 4: return syscall(SYS_msync, at, bytes, MS_SYNC);
    case 5: return syscall(SYS_mincore, at, bytes, pages);
    case 6: return syscall(SYS_munlock, at, bytes);
    }
    return msync(at + 1, bytes, MS_SYNC);
}

/* Calls that say whether something is mapped: where there is nothing any more, and where there is something as far as that. */
static void asked(void)
{
    static unsigned char pages[8192];
    for (int call = 0; call < 8; call++) {
        unsigned char *file = part(0, size);
        printf("file %zu\n", sum(file, size));
        munmap(file, size);
        answer("all", calls_gone(call, file, size, pages));
        unsigned char *one = part(0, 2 * MIB), *other = part(6 * MIB, 2 * MIB);
        printf("%zu %zu\n", sum(one, 2 * MIB), sum(other, 2 * MIB));
        munmap(one, 2 * MIB);
        answer("one of two", calls_gone(call, one, 2 * MIB, pages));
        answer("the other", calls_gone(call, other, 2 * MIB, pages));
        munmap(other, 2 * MIB);
        unsigned char *memory = must(mmap(NULL, 16 * MIB, BOTH, ANON, -1, 0));
        memset(memory, 7, 16 * MIB);
        munmap(memory + 4 * MIB, 2 * MIB);
        memset(pages, 77, sizeof pages);
        answer("memory", calls_gone(call, memory, 16 * MIB, pages));
        printf("%d\n", pages[4 * MIB / 4096]);
        answer("the hole", calls_gone(call, memory + 5 * MIB, 2 * MIB, pages));
        answer("in front", calls_gone(call, memory, 4 * MIB, pages));
        answer("behind", calls_gone(call, memory + 6 * MIB, 10 * MIB, pages));
        munmap(memory, 16 * MIB);
    }
}

/* Two parts of a file, and one call for both and all that is between. */
static void between(void)
{
    unsigned char *one = part(0, 2 * MIB), *other = part(6 * MIB, 2 * MIB);
    printf("%zu %zu\n", sum(one, 2 * MIB), sum(other, 2 * MIB));
    unsigned char *start = one < other ? one : other;
    size_t bytes = (one < other ? other : one) + 2 * MIB - start;
    /* With softfault there is nothing between that is the program's; without, it may be anything. */
    if (getenv("LD_PRELOAD"))
        munmap(start, bytes);
    munmap(one, 2 * MIB);
    munmap(other, 2 * MIB);
    unsigned char *memory = must(mmap(NULL, 8 * MIB, BOTH, ANON, -1, 0));
    memset(memory, 9, 8 * MIB);
    one = part(0, 2 * MIB);
    printf("%zu\n", sum(one, 2 * MIB));
    press();
    is_all(memory, 8 * MIB, 9, "memory");
}

/* Something else where one of two parts of a file was. */
static void over_one(int how)
{
    unsigned char *one = part(0, 2 * MIB), *other = part(6 * MIB, 2 * MIB);
    printf("%zu %zu\n", sum(one, 2 * MIB), sum(other, 2 * MIB));
    munmap(one, 2 * MIB);
    unsigned char *memory = mmap(one, 2 * MIB, BOTH, ANON | how, -1, 0);
    printf("there %d\n", memory == one);
    if (memory != one)
        return;
    memset(memory, 5, 2 * MIB);
    unsigned char *again = part(0, 2 * MIB);
    printf("apart %d, %zu\n", again != memory, sum(again, 2 * MIB));
    press();
    is_all(memory, 2 * MIB, 5, "memory");
    munmap(other, 2 * MIB);
    munmap(again, 2 * MIB);
    press();
    is_all(memory, 2 * MIB, 5, "memory");
}

static void over(void)
{
    over_one(MAP_FIXED);
    over_one(MAP_FIXED_NOREPLACE);
}

/* Nothing is replaced where both flags are set, also where some of the place is free. */
static void both(void)
{
    unsigned char *memory = must(mmap(NULL, 8 * MIB, BOTH, ANON, -1, 0));
    memset(memory, 3, 8 * MIB);
    for (int protection = PROT_NONE; protection <= BOTH; protection += BOTH) {
        void *there = mmap(memory + 2 * MIB, 4 * MIB, protection, ANON | MAP_FIXED | MAP_FIXED_NOREPLACE, -1, 0);
        answer("there", there == MAP_FAILED ? -1 : 0);
    }
    void *part = mmap(memory + 2 * MIB, 2 * MIB, PROT_NONE, ANON | MAP_NORESERVE | MAP_FIXED | MAP_FIXED_NOREPLACE, -1, 0);
    answer("reservation", part == MAP_FAILED ? -1 : 0);
    part = mmap(memory + 2 * MIB, 2 * MIB, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_FIXED_NOREPLACE, fd, 0);
    answer("file", part == MAP_FAILED ? -1 : 0);
    is_all(memory, 8 * MIB, 3, "memory");
    munmap(memory + 2 * MIB, 2 * MIB);
    part = mmap(memory + 2 * MIB, 4 * MIB, BOTH, ANON | MAP_FIXED | MAP_FIXED_NOREPLACE, -1, 0);
    answer("in part", part == MAP_FAILED ? -1 : 0);
    is_all(memory + 4 * MIB, 4 * MIB, 3, "behind");
    part = mmap(memory + 2 * MIB, 2 * MIB, BOTH, ANON | MAP_FIXED | MAP_FIXED_NOREPLACE, -1, 0);
    answer("free", part == memory + 2 * MIB ? 0 : -1);
    is_all(memory, 2 * MIB, 3, "before");
    is_all(memory + 2 * MIB, 2 * MIB, 0, "new");
    is_all(memory + 4 * MIB, 4 * MIB, 3, "behind");
}

/* Shared memory at an address, where a file was mapped, and where some of private memory was. */
static void attach_at(unsigned char *place, const char *what, int flags)
{
    int segment = shmget(IPC_PRIVATE, 2 * MIB, IPC_CREAT | 0600);
    unsigned char *shared = shmat(segment, place + (flags ? 100 : 0), flags);
    shmctl(segment, IPC_RMID, NULL);
    answer(what, shared == (void *)-1 ? -1 : 0);
    if (shared == (void *)-1)
        return;
    printf("there %d\n", shared == place);
    is_all(shared, 2 * MIB, 0, "shared");
    memset(shared, 6, 2 * MIB);
    press();
    is_all(shared, 2 * MIB, 6, "shared");
}

static void attached(void)
{
    unsigned char *one = part(0, 4 * MIB);
    printf("%zu\n", sum(one, 4 * MIB));
    munmap(one, 4 * MIB);
    attach_at(one, "file", 0);
    unsigned char *memory = must(mmap(NULL, 8 * MIB, BOTH, ANON, -1, 0));
    memset(memory, 3, 8 * MIB);
    munmap(memory + 2 * MIB, 4 * MIB);
    attach_at(memory + MIB, "in part", 0);
    attach_at(memory, "not free", 0);
    attach_at(memory + 2 * MIB, "memory", 0);
    attach_at(memory + 4 * MIB, "rounded", SHM_RND);
    is_all(memory, 2 * MIB, 3, "before");
    is_all(memory + 6 * MIB, 2 * MIB, 3, "behind");
    answer("detached", shmdt(memory + 2 * MIB));
    void *there = mmap(memory + 2 * MIB, 2 * MIB, BOTH, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    answer("free", there == memory + 2 * MIB ? 0 : -1);
}

/* A place where private memory was is free, also after a call that was refused. */
static void refused(void)
{
    unsigned char *memory = must(mmap(NULL, 8 * MIB, BOTH, ANON, -1, 0));
    memset(memory, 3, 8 * MIB);
    answer("munmap", munmap(memory + 2 * MIB, 2 * MIB));
    void *none = mmap(memory + 2 * MIB, 2 * MIB, BOTH, MAP_SHARED | MAP_FIXED_NOREPLACE, -1, 0);
    answer("bad descriptor", none == MAP_FAILED ? -1 : 0);
    void *there = mmap(memory + 2 * MIB, 2 * MIB, BOTH, ANON | MAP_FIXED_NOREPLACE, -1, 0);
    answer("free", there == memory + 2 * MIB ? 0 : -1);
    is_all(memory, 2 * MIB, 3, "before");
    is_all(memory + 4 * MIB, 4 * MIB, 3, "behind");
}

/* The only part of a reservation that is in use is given up, and used again. */
static void reserved(void)
{
    size_t bytes = 64 * MIB;
    unsigned char *start = must(mmap(NULL, bytes + 2 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0));
    unsigned char *at = (unsigned char *)(((size_t)start + 2 * MIB - 1) & ~(2 * MIB - 1));
    for (int round = 0; round < 3; round++) {
        must(mmap(at, 4 * MIB, BOTH, ANON | MAP_FIXED, -1, 0));
        is_all(at, 4 * MIB, 0, "new");
        memset(at, 8, 4 * MIB);
        must(mmap(at, 4 * MIB, PROT_NONE, ANON | MAP_NORESERVE | MAP_FIXED, -1, 0));
    }
    must(mmap(at, 8 * MIB, BOTH, ANON | MAP_FIXED, -1, 0));
    is_all(at, 8 * MIB, 0, "all");
}

/* A sealed file that may grow is mapped past its end, and grows. */
static void sealed(void)
{
    int file = memfd_create("sealed", MFD_ALLOW_SEALING);
    for (int seals = F_SEAL_WRITE | F_SEAL_SHRINK, round = 0; round < 2; round++) {
        if (round == 0)
            ftruncate(file, 4 * MIB);
        answer("seal", fcntl(file, F_ADD_SEALS, seals));
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", file);
        int readable = open(name, O_RDONLY);
        unsigned char *memory = must(mmap(NULL, 8 * MIB, PROT_READ, MAP_SHARED, readable, 0));
        is_all(memory, 4 * MIB, 0, "file");
        if (round == 0) {
            answer("grow", ftruncate(file, 8 * MIB));
            is_all(memory, 8 * MIB, 0, "grown");
        }
        munmap(memory, 8 * MIB);
        close(readable);
    }
}

/* A file in memory is mapped once more after another process has stored to it, by a mapping that it had read. */
static void stored(void)
{
    char name[64];
    snprintf(name, sizeof name, "/dev/shm/softfault-stored-%d", getpid());
    int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, 4 * MIB) < 0)
        exit(2);
    close(file);
    for (int round = 1; round < 4; round++) {
        /* Stamps that are young are looked at twice. */
        usleep(50000);
        int readable = open(name, O_RDONLY);
        unsigned char *memory = must(mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, readable, 0));
        printf("%d %d\n", memory[0], memory[MIB]);
        munmap(memory, 4 * MIB);
        close(readable);
        /* In a process of its own, which knows nothing of the mapping. */
        char command[256];
        snprintf(command, sizeof command, "python3 -c \"import mmap,sys\nf=open('%s','r+b')\nm=mmap.mmap(f.fileno(),0)\nx=m[0]+m[%zu]\nm[0]=%d\nm[%zu]=%d\"", name, MIB, round, MIB, round);
        unsetenv("LD_PRELOAD");
        answer("stores", system(command));
    }
    unlink(name);
}

enum { READERS = 4, CHUNK = 3 << 20 };
static unsigned char *chunks;
static char shown[READERS][64];

/* Each thread has bytes that lie together in the file, of which the words are numbers. */
static void *reads(void *argument)
{
    size_t which = (size_t)argument, bad = 0, rounds = 0;
    unsigned char *to = chunks + which * CHUNK;
    for (;;) {
        struct iovec two[] = {{to, CHUNK / 3}, {to + CHUNK / 3, CHUNK - CHUNK / 3}};
        ssize_t got = which % 2 ? readv(fd, two, 2) : read(fd, to, CHUNK);
        if (got <= 0)
            break;
        unsigned *words = (unsigned *)to;
        for (size_t i = 1; i < got / sizeof *words; i++)
            bad += words[i] != words[0] + i;
        rounds++;
    }
    snprintf(shown[which], sizeof shown[which], "%zu bad", bad);
    return NULL;
}

static void together_by(int flags)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.words", path);
    fd = open(name, O_RDONLY | flags);
    /* A file system without such reads. */
    if (fd < 0)
        fd = open(name, O_RDONLY);
    chunks = must(mmap(NULL, READERS * CHUNK, BOTH, ANON, -1, 0));
    for (int round = 0; round < 5; round++) {
        pthread_t threads[READERS];
        lseek(fd, 0, SEEK_SET);
        for (size_t i = 0; i < READERS; i++)
            pthread_create(&threads[i], NULL, reads, (void *)i);
        for (size_t i = 0; i < READERS; i++) {
            pthread_join(threads[i], NULL);
            printf("%s\n", shown[i]);
        }
        answer("position", lseek(fd, 0, SEEK_CUR));
    }
}

static void together(void)
{
    together_by(0);
    together_by(O_DIRECT);
}

/* A device reads whole blocks, also the last one of a file, of which the file has a byte. */
static void odd(void)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.odd", path);
    int file = open(name, O_RDONLY | O_DIRECT);
    if (file < 0)
        file = open(name, O_RDONLY);
    unsigned char *to = must(mmap(NULL, 8 * MIB, BOTH, ANON, -1, 0));
    for (int round = 0; round < 4; round++) {
        size_t had = 0;
        ssize_t got;
        lseek(file, 0, SEEK_SET);
        struct iovec two[] = {{to, MIB}, {to + MIB, 7 * MIB}};
        while ((got = round % 2 ? readv(file, two, 2) : read(file, to, 8 * MIB)) > 0)
            had += got;
        printf("%zd, %zu bytes, position %ld\n", got, had, (long)lseek(file, 0, SEEK_CUR));
    }
}

static FILE *stream;

static void *writes(void *argument)
{
    size_t which = (size_t)argument;
    unsigned char *from = chunks + which * CHUNK;
    for (int i = 0; i < 4; i++)
        fwrite(from, 1, CHUNK / 4, stream);
    return NULL;
}

/* The records of threads that write to one stream are whole. */
static void records(void)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.records", path);
    stream = fopen(name, "w+");
    chunks = must(mmap(NULL, READERS * CHUNK, BOTH, ANON, -1, 0));
    pthread_t threads[READERS];
    for (size_t i = 0; i < READERS; i++)
        memset(chunks + i * CHUNK, 'a' + i, CHUNK);
    for (size_t i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, writes, (void *)i);
    for (size_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    fflush(stream);
    size_t bad = 0, of[READERS] = {0};
    rewind(stream);
    unsigned char *record = must(mmap(NULL, CHUNK / 4, BOTH, ANON, -1, 0));
    while (fread(record, 1, CHUNK / 4, stream) == CHUNK / 4) {
        of[record[0] - 'a']++;
        for (size_t i = 1; i < CHUNK / 4; i++)
            bad += record[i] != record[0];
    }
    printf("%zu %zu %zu %zu, %zu bad\n", of[0], of[1], of[2], of[3], bad);
    unlink(name);
}

/* Masks by the number of the call: memory that is missing comes all the same. */
static void masks(void)
{
    unsigned char *file = part(0, size), *memory = must(mmap(NULL, 16 * MIB, BOTH, ANON, -1, 0));
    unsigned long all = ~0ul, before = 1;
    answer("block", syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, 8));
    printf("before %lx, file %zu\n", before, sum(file, size));
    memset(memory, 2, 16 * MIB);
    sigset_t set;
    answer("ask", sigprocmask(SIG_BLOCK, NULL, &set));
    printf("blocked %d\n", sigismember(&set, SIGBUS));
    unsigned long bus = 1ul << (SIGBUS - 1);
    answer("unblock", syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &bus, &before, 8));
    printf("before %d\n", (before & bus) != 0);
    answer("ask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, memory, 8));
    printf("now %d\n", (*(unsigned long *)memory & bus) != 0);
    answer("bad", syscall(SYS_rt_sigprocmask, SIG_BLOCK, (void *)8, NULL, 8));
    /* The old mask goes to a page that is not in memory. */
    unsigned long usr1 = 1ul << (SIGUSR1 - 1);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    press();
    answer("block", syscall(SYS_rt_sigprocmask, SIG_BLOCK, &usr1, memory, 8));
    printf("before %d\n", (*(unsigned long *)memory & usr1) != 0);
    is_all(memory + 4096, 16 * MIB - 4096, 2, "memory");
}

/* A thread that is cancelled at a read has read nothing. */
static void *is_cancelled(void *to)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    read(fd, to, 8 * MIB);
    return to;
}

static void cancelled(void)
{
    unsigned char *to = must(mmap(NULL, 8 * MIB, BOTH, ANON, -1, 0));
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, is_cancelled, to);
    pthread_join(thread, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    answer("position", lseek(fd, 0, SEEK_CUR));
    answer("read", read(fd, to, 8 * MIB));
    answer("position", lseek(fd, 0, SEEK_CUR));
    answer("read", read(fd, to, 8 * MIB));
    int writes = open("/dev/null", O_WRONLY);
    answer("read", read(writes, to, 8 * MIB));
    struct iovec two[] = {{to, 2 * MIB}, {to + 4 * MIB, (size_t)-1}};
    lseek(fd, 0, SEEK_SET);
    answer("readv", readv(fd, two, 2));
    answer("position", lseek(fd, 0, SEEK_CUR));
}

static void nothing(int number)
{
}

/* An array of poll(2) in memory that is not there. */
static void polls(void)
{
    unsigned char *memory = must(mmap(NULL, 32 * MIB, BOTH, ANON, -1, 0));
    memset(memory, 1, 32 * MIB);
    struct pollfd *all = (struct pollfd *)(memory + 4096 - sizeof *all);
    int ends[2];
    if (pipe(ends) < 0 || write(ends[1], "x", 1) != 1)
        exit(2);
    for (int i = 0; i < 3; i++) {
        all[0] = (struct pollfd){ends[0], POLLIN, 77};
        all[1] = (struct pollfd){-1, POLLIN, 77};
        press();
        is_all(memory + 8192, 32 * MIB - 8192, 1, "memory");
        struct timespec none = {0, 0};
        long answered = i == 0 ? poll(all, 2, 0) : i == 1 ? ppoll(all, 2, &none, NULL) : syscall(SYS_ppoll, all, 2, &none, NULL, 8);
        answer("poll", answered);
        printf("%d %d %d\n", all[0].fd == ends[0], all[0].revents, all[1].revents);
    }
    answer("bad", poll((void *)4096, 1, 0));
    /* A signal ends the wait, and there are no events. */
    struct sigaction handled = {.sa_handler = nothing};
    sigaction(SIGALRM, &handled, NULL);
    if (read(ends[0], memory + 8192, 1) != 1)
        exit(2);
    all[0] = (struct pollfd){ends[0], POLLIN, 77};
    struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    answer("interrupted", poll(all, 1, -1));
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%d\n", all[0].revents);
}

static struct {
    const char *name;
    void (*run)(void);
} CASES[] = {{"twice", twice}, {"gone", gone}, {"asked", asked}, {"between", between}, {"over", over}, {"both", both}, {"attached", attached}, {"refused", refused}, {"reserved", reserved}, {"together", together}, {"records", records}, {"sealed", sealed}, {"stored", stored}, {"masks", masks}, {"odd", odd}, {"cancelled", cancelled}, {"polls", polls}};
#include "run_case.h"
