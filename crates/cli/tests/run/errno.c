/* What calls leave in errno that are made with missing memory: `errno FILE`. Prints the same under softfault and without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

static char *mapped, *texts;
static size_t fresh;

/* A MiB that nothing has touched yet. */
static struct iovec next(void) { return (struct iovec){mapped + fresh++ * MIB, MIB}; }

/* A path whose first byte is in one page, and the rest in a page that is in swap. */
static const char *missing(const char *path)
{
    char *text = texts + (fresh++ + 1) * MIB - 1;
    strcpy(text, path);
    madvise(text + 1, PAGE, MADV_PAGEOUT);
    errno = E2BIG;
    return text;
}

static void show(const char *call, long answer)
{
    printf("%s %ld, errno %d\n", call, answer, errno);
    errno = E2BIG;
}

int main(int count, char **arguments)
{
    static char copy[MIB];
    struct iovec from, to = {copy, MIB};
    int file = open(arguments[1], O_RDONLY), out = memfd_create("out", 0);
    mapped = mmap(NULL, 16 * MIB, PROT_READ, MAP_PRIVATE, file, 0);
    texts = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = E2BIG;
    from = next(), show("write", write(out, from.iov_base, MIB));
    from = next(), show("pwrite", pwrite(out, from.iov_base, MIB, 0));
    from = next(), show("writev", writev(out, &from, 1));
    from = next(), show("process_vm_writev", process_vm_writev(getpid(), &from, 1, &to, 1, 0));
    from = next(), show("write to nowhere", write(-1, from.iov_base, MIB));
    show("access", access(missing("/proc"), R_OK));
    show("access to nothing", access(missing("/nothing"), R_OK));
    /* There is no such value, and no error. */
    show("pathconf", pathconf(missing("/proc"), _PC_ASYNC_IO));
    return 0;
}
