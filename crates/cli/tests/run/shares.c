/* A child of clone(2) shares its parent's memory, and makes the first large mapping: `shares CASE FILE`. Prints the same under softfault
   and without, but for a line about that mapping. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "whole_file.h"

static unsigned char *of_child;
static unsigned long of_first;

static int child(void *exits)
{
    of_child = map();
    of_first = sum(of_child);
    volatile char *block = malloc(size);
    for (size_t i = 0; i < size; i += 4096)
        block[i] = 1;
    free((void *)block);
    if (exits)
        _exit(5);
    return 5;
}

static void run_child(int flags, void *exits)
{
    char *stack = malloc(1 << 18);
    int status;
    pid_t made = clone(child, stack + (1 << 18), CLONE_VM | CLONE_FILES | SIGCHLD | flags, exits);
    if (made < 0 || waitpid(made, &status, 0) != made)
        exit(4);
    /* The parent's own mapping, and the child's. */
    printf("child %x: %d %d\n", status, of_first == sum(of_child), of_first == sum(map()));
}

static void returns(void) { run_child(0, NULL); }
static void exits(void) { run_child(0, &size); }
static void returns_to_waiting(void) { run_child(CLONE_VFORK, NULL); }
static void exits_to_waiting(void) { run_child(CLONE_VFORK, &size); }
/* The parent has an engine by then. */
static void comes_later(void)
{
    unsigned char *mapped = map();
    unsigned long before = sum(mapped);
    run_child(0, &size);
    printf("%d\n", before == sum(mapped));
}

static const struct { const char *name; void (*run)(void); } CASES[] = {
    {"returns", returns}, {"exits", exits}, {"returns-to-waiting", returns_to_waiting}, {"exits-to-waiting", exits_to_waiting},
    {"comes-later", comes_later},
};

#include "run_case.h"
