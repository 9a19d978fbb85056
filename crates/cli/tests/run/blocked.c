/* Signals that all threads of a program block, and threads that begin with all blocked: `blocked CASE FILE`. Prints the same under softfault
   and without. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "whole_file.h"

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

static unsigned char *of_timer;
static atomic_int called;
static void by_timer(union sigval value)
{
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    printf("%s %lu, blocked %d\n", (const char *)value.sival_ptr, sum(of_timer), sigismember(&set, SIGBUS));
    fflush(stdout);
    called++;
    pthread_exit(NULL);
}

/* Functions of timers touch memory that is missing. */
static void timers(void)
{
    char *values[] = {"first", "second"};
    of_timer = map();
    for (int i = 0; i < 4; i++) {
        timer_t timer;
        struct sigevent about = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = by_timer};
        const struct itimerspec soon = {.it_value = {0, 1000000}};
        about.sigev_value.sival_ptr = values[i & 1];
        if (timer_create(CLOCK_MONOTONIC, &about, &timer) != 0)
            exit(4);
        timer_settime(timer, 0, &soon, NULL);
        while (called <= i)
            usleep(1000);
        timer_delete(timer);
    }
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"others", others}, {"bus", bus}, {"timers", timers},
};

#include "run_case.h"
