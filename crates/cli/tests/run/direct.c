/* A device reads into private memory while others need memory: `direct libc|raw|forked FILE`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BYTES (16 * MIB)
#define PAGE 4096

static int fd, plain, raw;
static volatile int done;

static unsigned char *anon(void) { return mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static void *writes(void *nothing)
{
    unsigned char *bytes = anon();
    for (unsigned round = 0; !done; round++)
        for (size_t at = 0; at < BYTES && !done; at += PAGE)
            bytes[at] = round;
    return NULL;
}

static ssize_t read_direct(int how, unsigned char *to, size_t at)
{
    struct iovec parts[2] = {{to, MIB / 4}, {to + MIB / 4, MIB - MIB / 4}};
    if (raw)
        return syscall(SYS_pread64, fd, to, MIB, at);
    return how ? preadv(fd, parts, 2, at) : pread(fd, to, MIB, at);
}

static void *reads(void *seed)
{
    size_t bad = 0;
    unsigned state = (unsigned)(size_t)seed;
    unsigned char *bytes = anon(), *wanted = malloc(MIB);
    for (int i = 0; i < 15; i++) {
        size_t at = rand_r(&state) % 11 * MIB, place = rand_r(&state) % 15 * MIB;
        ssize_t got = read_direct(i % 2, bytes + place, at);
        if (got != (ssize_t)MIB || pread(plain, wanted, MIB, at) != (ssize_t)MIB)
            bad++;
        for (size_t page = 0; page < MIB; page += PAGE)
            bad += memcmp(bytes + place + page, wanted + page, PAGE) != 0;
    }
    return (void *)bad;
}

int main(int count, char **arguments)
{
    pthread_t writer, readers[3];
    size_t bad = 0;
    if (count < 3)
        return 2;
    raw = strcmp(arguments[1], "raw") == 0;
    fd = open(arguments[2], O_RDONLY | O_DIRECT);
    plain = open(arguments[2], O_RDONLY);
    if (fd < 0) {
        printf("no direct reads\n");
        return 0;
    }
    if (strcmp(arguments[1], "forked") == 0) {
        anon()[5] = 5;
        if (fork() == 0)
            _exit(0);
        wait(NULL);
    }
    pthread_create(&writer, NULL, writes, NULL);
    for (size_t i = 0; i < 3; i++)
        pthread_create(&readers[i], NULL, reads, (void *)(i + 1));
    for (size_t i = 0; i < 3; i++) {
        void *of_thread;
        pthread_join(readers[i], &of_thread);
        bad += (size_t)of_thread;
    }
    done = 1;
    pthread_join(writer, NULL);
    printf("bad %zu\n", bad);
    return 0;
}
