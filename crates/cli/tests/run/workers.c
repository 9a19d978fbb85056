/* Processes that share a budget: `workers WHAT FILE`. */
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
#include <sys/wait.h>
#include <unistd.h>

static const char *path;
static size_t size;

static const unsigned char *map(void)
{
    int fd = open(path, O_RDONLY);
    struct stat about;
    fstat(fd, &about);
    size = about.st_size;
    void *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) {
        perror("mmap");
        exit(3);
    }
    return mapped;
}

/* Compares every byte with read(2)'s, beginning somewhere. */
static void check(const unsigned char *mapped, unsigned from)
{
    static unsigned char chunk[1 << 16];
    int fd = open(path, O_RDONLY);
    size_t chunks = (size + sizeof chunk - 1) / sizeof chunk;
    for (size_t i = 0; i < chunks; i++) {
        size_t at = (i + (size_t)from * chunks / 8) % chunks * sizeof chunk;
        ssize_t got = pread(fd, chunk, sizeof chunk, at);
        if (got <= 0 || memcmp(mapped + at, chunk, got) != 0) {
            printf("other bytes at %zu\n", at);
            fflush(stdout);
            _exit(4);
        }
    }
    close(fd);
}

static void say(char c) { (void)!write(1, &c, 1); }
static void hear(void) { char c; if (read(0, &c, 1) != 1) exit(5); }

static int ended(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Six workers of a process that has a mapping of its own. */
static void pool(const char *self)
{
    const unsigned char *mapped = map();
    check(mapped, 7);
    pid_t workers[6];
    for (int i = 0; i < 6; i++)
        if ((workers[i] = fork()) == 0) {
            if (i % 2) {
                execl(self, self, "once", path, (char *)NULL);
                _exit(6);
            }
            const unsigned char *own = map();
            check(own, i);
            check(own, i + 3);
            exit(0);
        }
    check(mapped, 2);
    for (int i = 0; i < 6; i++)
        printf("worker %d\n", ended(workers[i]));
    check(mapped, 0);
}

int main(int argc, char **argv)
{
    path = argv[2];
    if (!strcmp(argv[1], "once"))
        check(map(), 0);
    else if (!strcmp(argv[1], "pool"))
        pool(argv[0]);
    else if (!strcmp(argv[1], "fill")) { /* Fills its share, says so, and stays. */
        check(map(), 0);
        say('.');
        hear();
    } else if (!strcmp(argv[1], "read")) { /* Reads until its input ends. */
        const unsigned char *mapped = map();
        fcntl(0, F_SETFL, O_NONBLOCK);
        for (char c; read(0, &c, 1) != 0;)
            check(mapped, 0);
    }
    return 0;
}
