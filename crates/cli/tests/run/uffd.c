/* Serves the faults of its own memory, by a userfaultfd of its own: `uffd`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (4ul << 20)

static int fd;
static char page[4096] __attribute__((aligned(4096)));

static void *serves(void *none)
{
    struct uffd_msg message;
    while (read(fd, &message, sizeof message) == sizeof message) {
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~4095ul, .src = (uintptr_t)page, .len = 4096};
        ioctl(fd, UFFDIO_COPY, &copy);
    }
    return none;
}

int main(void)
{
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0) {
        printf("none\n");
        return 0;
    }
    struct uffdio_api api = {.api = UFFD_API};
    printf("api %d\n", ioctl(fd, UFFDIO_API, &api));
    memset(page, 'z', sizeof page);
    pthread_t thread;
    pthread_create(&thread, NULL, serves, NULL);
    for (int round = 0; round < 2; round++) {
        char *memory = round ? malloc(BYTES) : mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *whole = (char *)(((uintptr_t)memory + 4095) & ~4095ul);
        struct uffdio_register part = {.range = {(uintptr_t)whole, BYTES / 4 * 3}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        whole[BYTES / 8 * 7] = 5;
        printf("register %d\n", ioctl(fd, UFFDIO_REGISTER, &part) ? errno : 0);
        size_t pages = 0;
        for (size_t at = 0; at < BYTES / 4 * 3; at += 4096)
            pages += whole[at] == 'z';
        printf("pages %zu, behind %d\n", pages, whole[BYTES / 8 * 7]);
    }
    return 0;
}
