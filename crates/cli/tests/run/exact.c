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

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {{"spliced", spliced}, {"ends", ends}};
#include "run_case.h"
