/* Signals that all threads of a program block: `blocked CASE FILE`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *path;
static int fd;
static size_t size;

static unsigned char *map(void)
{
    unsigned char *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        exit(3);
    return mapped;
}

static unsigned long sum(const unsigned char *bytes)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < size; i += 4096)
        sum = sum * 31 + bytes[i];
    return sum;
}

/* Each signal is sent to the process while calls and touches are served: it stays pending until it is waited for. At the end one is
   pending. */
static void stay_pending(const int *signals, int count)
{
    unsigned char *mapped = map();
    const struct timespec second = {1, 0};
    for (int i = 0; i < count; i++) {
        sigset_t set, pending;
        siginfo_t about;
        sigemptyset(&set), sigaddset(&set, signals[i]);
        sigprocmask(SIG_BLOCK, &set, NULL);
        kill(getpid(), signals[i]);
        unsigned long found = sum(mapped);
        munmap(mapped, size);
        mapped = map();
        sigpending(&pending);
        printf("%lu, pending %d, ", found, sigismember(&pending, signals[i]));
        printf("waited for %d\n", sigtimedwait(&set, &about, &second) == signals[i]);
        kill(getpid(), signals[i]);
    }
}

static void others(void)
{
    const int signals[] = {SIGSEGV, SIGILL, SIGFPE, SIGTRAP};
    stay_pending(signals, 4);
}

static void bus(void)
{
    const int signals[] = {SIGBUS};
    stay_pending(signals, 1);
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"others", others}, {"bus", bus},
};

#include "run_case.h"
