/* Unusual ways of life of a program that uses its mappings meanwhile: `lives CASE FILE`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answers.h"

#define PAGE 4096
#define ANON ((size_t)16 << 20)
static uint64_t *words, seed;
static unsigned char *file;

static void fill(uint64_t s)
{
    seed = s;
    for (size_t i = 0; i < ANON / 8; i += 8)
        words[i] = word(i, s);
}

/* All of both, more than the budget. */
static void check(const char *what)
{
    size_t wrong = 0;
    for (size_t i = 0; i < ANON / 8; i += 8)
        wrong += words[i] != word(i, seed);
    printf("%s: wrong %zu, file %016llx\n", what, wrong, (unsigned long long)sum(file, size));
    fflush(stdout);
}

static void map(void)
{
    words = mmap(NULL, ANON, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    file = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED || file == MAP_FAILED) {
        printf("mmap: %s\n", strerror(errno));
        exit(3);
    }
    fill(1);
    check("first");
}

/* A child that goes on with it, and maps more. */
static void child(void)
{
    fflush(stdout);
    pid_t made = fork();
    if (made == 0) {
        check("child");
        fill(7);
        check("child's own");
        uint64_t *more = mmap(NULL, ANON, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more != MAP_FAILED)
            words = more, fill(8), check("child's more");
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(made, &status, 0);
    printf("child %d\n", status);
}

static void more(void)
{
    munmap(words, ANON);
    munmap(file, size);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    words = mmap(NULL, ANON, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (again >= 0)
        file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, again, 0);
    else
        file = (unsigned char *)words, size = ANON;
    if (words == MAP_FAILED || file == MAP_FAILED)
        printf("mmap: %s\n", strerror(errno)), exit(0);
    fill(3);
    printf("%d ", again >= 0);
    check("more");
}

static void closes_all(void)
{
    map();
    for (int i = 0; i < 4096; i++)
        if (i != STDOUT_FILENO)
            close(i);
    check("closed");
    fill(2);
    check("again");
    syscall(SYS_close_range, 3, ~0U, 0);
    syscall(SYS_close_range, 3, ~0U, 2);
    child();
    more();
    child();
}

static void daemon_of_old(void)
{
    int ends[2];
    map();
    if (pipe(ends))
        exit(4);
    fflush(stdout);
    if (fork() == 0) {
        setsid();
        signal(SIGHUP, SIG_IGN);
        if (fork() != 0)
            _exit(0);
        umask(0);
        if (chdir("/"))
            exit(5);
        dup2(ends[1], STDOUT_FILENO);
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        for (int i = 3; i < 1024; i++)
            close(i);
        check("daemon");
        fill(2);
        check("daemon's own");
        more();
        child();
        fflush(stdout);
        exit(0);
    }
    wait(NULL);
    close(ends[1]);
    char buffer[4096];
    ssize_t got;
    while ((got = read(ends[0], buffer, sizeof buffer)) > 0)
        fwrite(buffer, 1, got, stdout);
    check("starter");
}

static void chroots(void)
{
    char place[] = "/tmp/softfault-lives-XXXXXX";
    map();
    if (!mkdtemp(place) || chroot(place) || chdir("/"))
        printf("no root\n");
    check("inside");
    fill(2);
    child();
    munmap(words, ANON);
    words = mmap(NULL, ANON, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(3);
    check("more");
    munmap(file, size);
    file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    check("again");
    child();
}

/* Before the first mapping, in a directory where nothing is mounted. */
static void empty_root(void)
{
    char *place = strdup(path);
    *strrchr(place, '/') = 0;
    if (chroot(place) || chdir("/"))
        printf("no root\n");
    map();
    check("inside");
}

static void drops(void)
{
    map();
    if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
        printf("no root\n");
    prctl(PR_SET_DUMPABLE, 0);
    check("nobody");
    fill(2);
    check("nobody's own");
    child();
    more();
    child();
}

static void limit(int what, rlim_t most)
{
    struct rlimit limit = {most, most};
    if (setrlimit(what, &limit))
        printf("limit: %s\n", strerror(errno));
}

/* No number is left for a file that the child would open. */
static void few_descriptors(void)
{
    map();
    limit(RLIMIT_NOFILE, 6);
    fill(2);
    check("few");
    child();
}

static void no_processes(void)
{
    map();
    limit(RLIMIT_NPROC, 0);
    check("processes");
    fill(2);
    check("again");
}

static void locks_all(void)
{
    map();
    printf("mlockall %d\n", mlockall(MCL_CURRENT));
    check("locked");
    fill(2);
    check("again");
    munlockall();
    fill(3);
    check("unlocked");
    printf("mlockall %d\n", mlockall(MCL_FUTURE));
    uint64_t *other = mmap(NULL, ANON, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* Refused beyond RLIMIT_MEMLOCK, which memory that is taken does not count for. */
    if (other != MAP_FAILED)
        words = other, fill(5);
    check("future");
    child();
}

static volatile unsigned ticks;
static void tick(int signal) { ticks += words[ticks * 64 % (ANON / 8)] != 0 && file[ticks * 4099 % size] < 256; }
static void alarms(void)
{
    map();
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    for (int i = 2; i < 6; i++)
        fill(i), check("alarms");
    setitimer(ITIMER_REAL, &never, NULL);
    setitimer(ITIMER_PROF, &never, NULL);
    printf("ticks %d\n", ticks > 0);
    child();
}

static void *goes_on(void *with)
{
    struct timespec a_while = {0, 50000000};
    nanosleep(&a_while, NULL);
    check("thread");
    fill(2);
    check("thread's own");
    child();
    fflush(stdout);
    exit(0);
}

static void main_ends(void)
{
    pthread_t thread;
    map();
    pthread_create(&thread, NULL, goes_on, NULL);
    pthread_exit(NULL);
}

static void unshares(void)
{
    map();
    if (unshare(CLONE_FILES | CLONE_FS | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC))
        printf("unshare: %s\n", strerror(errno));
    check("unshared");
    fill(2);
    child();
    more();
    child();
}

static void no_dump(void)
{
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    map();
    fill(2);
    check("not dumpable");
    child();
}

static void *thread(void *with)
{
    size_t own = (size_t)with;
    for (int round = 0; round < 30; round++) {
        uint64_t *at = mmap(NULL, (size_t)2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < ((size_t)2 << 20) / 8; i += 64)
            at[i] = word(i, own);
        for (size_t i = 0; i < ((size_t)2 << 20) / 8; i += 64)
            if (at[i] != word(i, own))
                return (void *)1;
        if (round % 10 == (int)own % 10) {
            pid_t made = fork();
            if (made == 0)
                _exit(at[64] != word(64, own));
            int status;
            waitpid(made, &status, 0);
            if (status)
                return (void *)2;
        }
        munmap(at, (size_t)2 << 20);
    }
    return NULL;
}

static void many(void)
{
    pthread_t all[16];
    map();
    for (size_t i = 0; i < 16; i++)
        pthread_create(&all[i], NULL, thread, (void *)(i + 1));
    size_t wrong = 0;
    for (size_t i = 0; i < 16; i++) {
        void *answer;
        pthread_join(all[i], &answer);
        wrong += answer != NULL;
    }
    printf("wrong %zu\n", wrong);
    check("all");
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"closes-all", closes_all}, {"daemon", daemon_of_old}, {"chroots", chroots}, {"empty-root", empty_root}, {"drops", drops}, {"few-descriptors", few_descriptors}, 
    {"no-processes", no_processes},
    {"locks-all", locks_all}, 
    {"alarms", alarms}, {"main-ends", main_ends}, {"unshares", unshares}, {"no-dump", no_dump}, {"many", many},
};

#include "run_case.h"
