/* Ways to die of SIGBUS: `dies CASE FILE`. Whoever does not is ended by SIGALRM. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

static const char *path;
static int fd;
static size_t size;
static volatile unsigned char *bytes;

static void take(void)
{
    alarm(100);
    bytes = mmap(NULL, size + 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    printf("%d\n", bytes[0] == bytes[PAGE]);
    fflush(stdout);
}

/* A touch behind the end of the file. */
static void beyond(void)
{
    take();
    printf("%d\n", bytes[size + PAGE]);
}

/* The same, of a mapping that is the kernel's. */
static void kernels(void)
{
    take();
    FILE *empty = tmpfile();
    volatile unsigned char *own = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(empty), 0);
    printf("%d\n", own[0]);
}

static void sent(void)
{
    take();
    kill(getpid(), SIGBUS);
}

static void restores(int signal_number)
{
    static const char text[] = "handled\n";
    write(1, text, sizeof text - 1);
    signal(signal_number, SIG_DFL);
}

/* A handler as most programs have that say where they crashed. */
static void restored(void)
{
    take();
    signal(SIGBUS, restores);
    printf("%d\n", bytes[size + PAGE]);
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {{"beyond", beyond}, {"kernels", kernels}, {"sent", sent}, {"restored", restored}};
#include "run_case.h"
