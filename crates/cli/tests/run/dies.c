/* Ways to die of SIGBUS: `dies CASE FILE`. A case that does not die so is ended by SIGALRM. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answers.h"

#define PAGE ((size_t)4096)

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

static void raises(int signal_number)
{
    struct sigaction none = {.sa_handler = SIG_DFL};
    sigaction(signal_number, &none, NULL);
    raise(signal_number);
}

/* As Python's faulthandler, of a signal that is raised. The last fault before it was a write, and was served. */
static void raised(void)
{
    alarm(100);
    volatile unsigned char *own =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    struct sigaction handler = {.sa_handler = raises, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &handler, NULL);
    own[PAGE] = 1;
    raise(SIGBUS);
}

/* Memory that does not fit. */
static void fills(void)
{
    alarm(100);
    volatile unsigned char *own =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    for (size_t at = 0; at < size; at += PAGE)
        own[at] = 1;
    puts("it fits");
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {{"beyond", beyond}, {"kernels", kernels}, {"sent", sent}, {"restored", restored}, {"raised", raised}, {"fills", fills}};
#include "run_case.h"
