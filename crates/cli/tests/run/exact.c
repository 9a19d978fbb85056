/* Calls that take something away, stop half-way or write a part of what they were handed, on memory that is not there: `exact CASE FILE`.
   Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

#define PAGE ((size_t)4096)
#define SLOT ((size_t)256 << 10)
#define MIB ((size_t)1 << 20)
#define BOTH (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static unsigned char *memory;
static size_t used;

/* A place that nothing has touched. */
static void *fresh(void)
{
    if (!memory)
        memory = mmap(NULL, 64 * SLOT, BOTH, PRIVATE, -1, 0);
    return memory + used++ * SLOT;
}

/* These bytes, in a page that is not in memory. */
static void *cold(const void *bytes, size_t count)
{
    void *place = fresh();
    memcpy(place, bytes, count);
    madvise(place, SLOT, MADV_PAGEOUT);
    return place;
}
#define B(what) cold(&what, sizeof what)

static ssize_t splice_of(int how, int to, struct iovec *parts, size_t count)
{
    return how ? syscall(SYS_vmsplice, to, parts, count, SPLICE_F_NONBLOCK) : vmsplice(to, parts, count, SPLICE_F_NONBLOCK);
}

/* vmsplice(2) of either end of a pipe. */
static void spliced(void)
{
    const unsigned char *file = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    for (int how = 0; how < 2; how++) {
        char text[] = "0123456789abcdefghij", has[21] = "";
        int ends[2];
        pipe(ends);
        char *first = fresh(), *second = B(text);
        struct iovec parts[2] = {{first + PAGE - 3, 8}, {second, 12}};
        (void)!write(ends[1], text, 20);
        answer("out", splice_of(how, ends[0], parts, 2));
        printf("%.8s %.12s\n", first + PAGE - 3, second);
        /* What has no place stays in the pipe. */
        (void)!write(ends[1], text, 20);
        struct iovec only_read = {(void *)(file + (how + 5) * PAGE), 20};
        answer("read only", splice_of(how, ends[0], &only_read, 1));
        answer("left", read(ends[0], has, 20));
        printf("%s\n", has);
        struct iovec in = {B(text), 20};
        answer("in", splice_of(how, ends[1], &in, 1));
        memset(has, 0, sizeof has);
        answer("read", read(ends[0], has, 20));
        printf("%s\n", has);
    }
}

static int reads_from;
static volatile size_t drained;

static size_t waiting(int from)
{
    int bytes = 0;
    ioctl(from, FIONREAD, &bytes);
    return bytes;
}

/* The first time that bytes wait there, takes all of them. There are some only if the call that writes them was interrupted. */
static void drain(int signal)
{
    static char buffer[PAGE];
    while (!drained && waiting(reads_from) > 0) {
        size_t all = 0;
        while (waiting(reads_from) > 0)
            all += read(reads_from, buffer, sizeof buffer);
        drained = all;
    }
}

/* A call that writes is interrupted by a handler that makes room for more of it: it ends. */
static void interrupted(const char *what, int by_socket, int touched, const volatile unsigned char *from)
{
    int ends[2];
    by_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends);
    size_t skip = by_socket ? 0 : 1;
    for (size_t at = 0; at < touched * MIB / 4; at += PAGE)
        (void)from[at];
    reads_from = ends[1 - skip], drained = 0;
    /* Again and again: the first may come before the call has begun to wait. */
    struct itimerval soon = {{0, 50000}, {0, 50000}}, none = {};
    setitimer(ITIMER_REAL, &soon, NULL);
    ssize_t wrote = write(ends[skip], (void *)from, MIB);
    setitimer(ITIMER_REAL, &none, NULL);
    printf("%s: %s\n", what, wrote > 0 && (size_t)wrote == drained ? "ended" : "went on");
    fflush(stdout);
    close(ends[0]), close(ends[1]);
}

static void ends(void)
{
    const unsigned char *file = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    madvise((void *)file, size, MADV_RANDOM);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = drain}, NULL);
    interrupted("pipe, nothing touched", 0, 0, file);
    interrupted("pipe, a quarter touched", 0, 1, file + MIB);
    interrupted("pipe, all touched", 0, 4, file + 2 * MIB);
    interrupted("socket, nothing touched", 1, 0, file + 3 * MIB);
    interrupted("socket, all touched", 1, 4, file + 4 * MIB);
}

/* More descriptors than the process has room for: the kernel looks at fewer. */
#define MANY 65536

struct sets { fd_set write, read; };

static void asked(const char *what, int by, int pair[2])
{
    struct sets *sets = fresh();
    FD_SET(pair[0], &sets->read), FD_SET(pair[1], &sets->write);
    int answered = by ? pselect(MANY, &sets->read, &sets->write, NULL, &(struct timespec){0}, NULL)
                      : select(MANY, &sets->read, &sets->write, NULL, &(struct timeval){0});
    answer(what, answered);
    printf("read %d, write %d\n", FD_ISSET(pair[0], &sets->read), FD_ISSET(pair[1], &sets->write));
    /* One set for two questions has the answer of the last. */
    fd_set *both = fresh();
    FD_SET(pair[0], both), FD_SET(pair[1], both);
    answered = by ? pselect(MANY, both, both, NULL, &(struct timespec){0}, NULL) : select(MANY, both, both, NULL, &(struct timeval){0});
    answer(what, answered);
    printf("read %d, write %d\n", FD_ISSET(pair[0], both), FD_ISSET(pair[1], both));
}

/* A set in front of memory that may not be read. */
static void at_the_end(int pair[2])
{
    unsigned char *place = mmap(NULL, 4 * MIB, BOTH, PRIVATE, -1, 0);
    mprotect(place + 3 * MIB, PAGE, PROT_NONE);
    for (int by = 0; by < 2; by++) {
        fd_set *set = (void *)(place + (3 - by) * MIB - sizeof *set);
        if (by)
            mprotect(place + 2 * MIB, PAGE, PROT_NONE);
        answer("at the end", by ? pselect(MANY, NULL, set, NULL, &(struct timespec){0}, NULL) : select(MANY, NULL, set, NULL, &(struct timeval){0}));
        FD_SET(pair[1], set);
        madvise((void *)((uintptr_t)set & -PAGE), PAGE, MADV_PAGEOUT);
        answer("at the end", by ? pselect(MANY, NULL, set, NULL, &(struct timespec){0}, NULL) : select(MANY, NULL, set, NULL, &(struct timeval){0}));
        printf("%d\n", FD_ISSET(pair[1], set));
    }
}

static volatile int *stored;
static volatile sig_atomic_t ticks;
static void store(int signal) { *stored = 7777, ticks++; }

/* What a handler stores while a call waits stays. */
static void kept(void)
{
    int pair[2];
    pipe(pair);
    asked("select", 0, pair), asked("pselect", 1, pair);
    at_the_end(pair);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = store}, NULL);
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    for (int how = 0; how < 5; how++) {
        int *place = fresh();
        fd_set *set = (void *)place;
        socklen_t *len = (void *)place;
        memset(place, 0, 2 * sizeof *set);
        stored = how < 2 ? place + sizeof *set / sizeof *place : place;
        struct itimerval soon = {{0, 50000}, {0, 50000}}, none = {};
        if (how < 2)
            FD_SET(pair[0], set);
        int listens = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr from;
        bind(listens, &(struct sockaddr){AF_UNIX}, sizeof(sa_family_t)), listen(listens, 1);
        setitimer(ITIMER_REAL, &soon, NULL);
        switch (how) {
        case 0: answer("select", select(MANY, set, NULL, NULL, NULL)); break;
        case 1: answer("pselect", pselect(MANY, set, NULL, NULL, NULL, NULL)); break;
        case 2: answer("wait4", wait4(child, place, 0, NULL)); break;
        case 3: *len = sizeof from, answer("accept", accept(listens, &from, len)); break;
        default:
            /* None is over: the kernel writes nothing. */
            for (int before = ticks; ticks == before;)
                if (waitpid(child, place, WNOHANG) != 0)
                    break;
            answer("waitpid", 0);
        }
        setitimer(ITIMER_REAL, &none, NULL);
        printf("stored %d\n", *stored);
        close(listens);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Calls by their numbers. */
static void numbers(void)
{
    static struct stat about;
    struct timespec times[2] = {{1000, 0}, {2000, 0}}, soon = {1, 0};
    struct epoll_event wanted = {.events = EPOLLOUT, .data.u64 = 99};
    char name[] = "/tmp/softfault-run-XXXXXX";
    int made = mkstemp(name), poll = epoll_create1(0), pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    epoll_ctl(poll, EPOLL_CTL_ADD, pair[0], &wanted);
#ifdef __x86_64__
    for (int round = 0; round < 2; round++) {
        struct stat *one = round ? B(about) : fresh(), *other = round ? B(about) : fresh();
        char *link = round ? B(about) : fresh();
        struct epoll_event *got = round ? B(about) : fresh();
        answer("stat", syscall(SYS_stat, path, one));
        answer("lstat", syscall(SYS_lstat, path, other));
        printf("%d %d\n", one->st_size == (off_t)size, other->st_size == (off_t)size);
        answer("readlink", syscall(SYS_readlink, "/proc/self/exe", link, 1000));
        printf("%c\n", link[0]);
        answer("epoll_wait", syscall(SYS_epoll_wait, poll, got, 5, 10));
        printf("%d\n", (int)got->data.u64);
    }
#endif
    for (int round = 0; round < 2; round++) {
        struct statfs *one = round ? B(about) : fresh(), *other = round ? B(about) : fresh();
        answer("statfs", syscall(SYS_statfs, path, one));
        answer("fstatfs", syscall(SYS_fstatfs, fd, other));
        printf("%d %d\n", one->f_bsize > 0, other->f_bsize > 0);
        int *has = round ? B(about) : fresh();
        answer("ioctl", syscall(SYS_ioctl, pair[0], FIONREAD, has));
        printf("%d\n", *has);
    }
    answer("utimensat", syscall(SYS_utimensat, AT_FDCWD, name, B(times), 0));
    stat(name, &about);
    printf("%ld %ld\n", (long)about.st_atime, (long)about.st_mtime);
    unlink(name);
    char queue_name[40];
    snprintf(queue_name, sizeof queue_name, "/softfault-exact-%d", getpid());
    mqd_t queue = mq_open(queue_name, O_RDWR | O_CREAT, 0600, &(struct mq_attr){.mq_maxmsg = 1, .mq_msgsize = 8});
    printf("%d\n", queue < 0 ? errno : 0);
    if (queue >= 0) {
        clock_gettime(CLOCK_REALTIME, &soon), soon.tv_sec += 100;
        answer("mq_timedsend", syscall(SYS_mq_timedsend, queue, "x", 1, 0, B(soon)));
        mq_unlink(queue_name);
    }
    close(made);
}

#define SYS_MSEAL 462

/* Memory that is sealed stays as it is, and is nobody's to take away. */
static void sealed(void)
{
    unsigned char *file = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0), *anon = mmap(NULL, 4 * MIB, BOTH, PRIVATE, -1, 0);
    memset(anon, 7, 4 * MIB);
    size_t before = sum(file, size);
    answer("invalid", syscall(SYS_MSEAL, file, size, 1));
    answer("file", syscall(SYS_MSEAL, file, size, 0));
    answer("part", syscall(SYS_MSEAL, anon + MIB, MIB, 0));
    answer("munmap", munmap(file, size));
    answer("mprotect", mprotect(file, size, PROT_NONE));
    /* Of a part that was handed over it is another error. */
    answer("munmap", munmap(anon + MIB, PAGE) < 0);
    answer("munmap", munmap(anon, MIB));
    munmap(anon + 3 * MIB, MIB / 2);
    answer("hole", syscall(SYS_MSEAL, anon + 2 * MIB, 2 * MIB, 0));
    /* Nothing was. */
    answer("munmap", munmap(anon + 2 * MIB, PAGE));
    printf("%d %zu\n", sum(file, size) == before, sum(anon + MIB, MIB));
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {{"spliced", spliced}, {"ends", ends}, {"kept", kept}, {"numbers", numbers}, {"sealed", sealed}};
#include "run_case.h"
