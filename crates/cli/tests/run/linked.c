/* A library that a program is linked with, and the program: the library's constructor runs before softfault is initialised. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

int run(int argc, char **argv);

#ifdef PROGRAM
/* Before the C library has the environment. */
static void first(void)
{
    struct sigaction before;
    sigaction(SIGUSR2, NULL, &before);
}
__attribute__((section(".preinit_array"), used)) static void (*begins)(void) = first;

int main(int argc, char **argv) { return run(argc, argv); }
#else

#ifdef OPENED
/* The loader is locked while this library's constructor runs. */
static struct looks {
    pthread_t thread;
    volatile int number, answer, is_done;
} looks[2];

static void *look(void *of)
{
    struct looks *own = of;
    struct itimerval timer;
    own->number = gettid();
    own->answer = getitimer(ITIMER_REAL, &timer);
    own->is_done = 1;
    return NULL;
}

/* True in a thread that waits in the kernel. */
static int sleeps(int number)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
    FILE *about = fopen(path, "r");
    if (about) {
        fscanf(about, "%*d (%*[^)]) %c", &state);
        fclose(about);
    }
    return state == 'S';
}

__attribute__((constructor)) static void opened(void)
{
    for (struct looks *at = looks; at < looks + 2; at++) {
        pthread_create(&at->thread, NULL, look, at);
        while (!at->is_done && !(at->number && sleeps(at->number)))
            usleep(1000);
    }
}

void print_answers(void)
{
    for (struct looks *at = looks; at < looks + 2; at++) {
        pthread_join(at->thread, NULL);
        printf("answer %d\n", at->answer);
    }
}
#else

static const char *scene = "", *file;
static void *opened;

static const unsigned char *map(void)
{
    int fd = open(file, O_RDONLY);
    const unsigned char *bytes = mmap(NULL, lseek(fd, 0, SEEK_END), PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return bytes;
}

static void touch(const char *who)
{
    int fd = open(file, O_RDONLY);
    size_t size = lseek(fd, 0, SEEK_END);
    close(fd);
    const unsigned char *bytes = map();
    uint64_t sum = 0;
    for (size_t at = 0; at < size; at += 512)
        sum = sum * 31 + bytes[at];
    printf("%s %llx\n", who, (unsigned long long)sum);
    fflush(stdout);
}

static int is_blocked(void)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    return sigismember(&now, SIGBUS);
}

static pthread_t thread;
static int begins[2];

static void *wait_and_touch(void *none)
{
    char byte;
    read(begins[0], &byte, 1);
    touch("thread");
    return none;
}

static void in_handler(int signal)
{
    touch("handler");
}

static void on_sigbus(int signal) { write(STDOUT_FILENO, "SIGBUS\n", 7); }

static unsigned char *block;
static size_t usable;

static void resize(void)
{
    if (!block)
        return;
    usable = malloc_usable_size(block);
    unsigned char *other = realloc(block, 4 << 20);
    block = other ? other : block;
    other = realloc(block, 1 << 20);
    block = other ? other : block;
}

static const unsigned char *mapped;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void hold(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }

static void reads(void)
{
    if (mapped)
        printf("handler reads %d\n", mapped[4096]);
    fflush(stdout);
}

static void *waits(void *none)
{
    for (;;)
        pause();
}

/* Printed when the child has ended. */
static int read_in_parent = -1;

static void reads_in_parent(void)
{
    read_in_parent = mapped ? mapped[4096] : -1;
}

/* New memory: it must not come to be where the parent's mappings were. */
static void restarts(void)
{
    pthread_create(&thread, NULL, waits, NULL);
    for (int i = 0; i < 24; i++)
        memset(malloc(1 << 20), 0xEE, 1 << 20);
}

static void use(void)
{
    pthread_mutex_lock(&lock);
    const unsigned char *bytes = map();
    volatile unsigned char byte = bytes[0];
    munmap((void *)bytes, (24 << 20) + 100);
    pthread_mutex_unlock(&lock);
}

static volatile int is_done;

static void *uses(void *none)
{
    while (!is_done)
        use();
    return none;
}

static void fork_and_touch(void)
{
    int status;
    size_t wrong = 0;
    mapped = map();
    pid_t child = fork();
    if (child == 0) {
        const unsigned char *again = map();
        wrong = memcmp(mapped, again, 20 << 20) != 0;
        printf("child %zu\n", wrong);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("status %x, parent reads %d\n", status, read_in_parent);
}

__attribute__((constructor)) static void starts(int argc, char **argv)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    scene = argv[1], file = argv[2];
    if (!strcmp(scene, "looked-up")) {
        opened = dlopen(file, RTLD_NOW);
    } else if (!strcmp(scene, "blocked")) {
        struct sigaction action = {.sa_handler = in_handler, .sa_mask = set};
        pipe(begins);
        sigaction(SIGUSR1, &action, NULL);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        pthread_create(&thread, NULL, wait_and_touch, NULL);
    } else if (!strcmp(scene, "handled")) {
        struct sigaction action = {.sa_handler = on_sigbus};
        map();
        sigaction(SIGBUS, &action, NULL);
    } else if (!strcmp(scene, "forks")) {
        pthread_atfork(resize, resize, resize);
    } else if (!strcmp(scene, "forks-unseen")) {
        int (*register_handlers)(void (*)(void), void (*)(void), void (*)(void), void *);
        register_handlers = dlsym(dlopen("libc.so.6", RTLD_NOW), "__register_atfork");
        register_handlers(resize, resize, resize, NULL);
    } else if (!strcmp(scene, "restarts")) {
        pthread_atfork(NULL, NULL, restarts);
    } else if (!strcmp(scene, "reads")) {
        pthread_atfork(reads, reads_in_parent, reads);
    } else if (!strcmp(scene, "maps")) {
        mapped = map();
        pthread_atfork(reads, reads_in_parent, reads);
    } else if (!strcmp(scene, "holds")) {
        pthread_atfork(hold, let_go, let_go);
    }
}

int run(int argc, char **argv)
{
    if (!strcmp(scene, "looked-up")) {
        void (*print)(void) = (void (*)(void))dlsym(opened, "print_answers");
        print();
    } else if (!strcmp(scene, "blocked")) {
        printf("blocked %d\n", is_blocked());
        touch("first");
        write(begins[1], "", 1);
        pthread_join(thread, NULL);
        sigset_t none;
        sigemptyset(&none);
        pthread_sigmask(SIG_SETMASK, &none, NULL);
        raise(SIGUSR1);
        printf("blocked %d\n", is_blocked());
    } else if (!strcmp(scene, "handled")) {
        raise(SIGBUS);
        touch("first");
    } else if (!strncmp(scene, "forks", 5)) {
        int status;
        block = malloc(2 << 20);
        memset(block, 7, 2 << 20);
        pid_t child = fork();
        size_t wrong = 0;
        for (size_t at = 0; at < 1 << 20; at++)
            wrong += block[at] != 7;
        printf("usable %d wrong %zu\n", usable >= 1 << 20, wrong);
        fflush(stdout);
        if (child == 0)
            _exit(wrong != 0);
        waitpid(child, &status, 0);
        printf("child %d\n", status);
    } else if (!strcmp(scene, "holds")) {
        use();
        pthread_create(&thread, NULL, uses, NULL);
        for (int i = 0; i < 100; i++) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
        }
        is_done = 1;
        pthread_join(thread, NULL);
        printf("done\n");
    } else {
        fork_and_touch();
    }
    return 0;
}
#endif
#endif
