/* Functions of the C library's names that a program has itself, by syscall(2), as a statically linked tcmalloc has: `own_names CASE FILE`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return mmap(at, bytes, protection, flags, fd, offset);
}
int munmap(void *at, size_t bytes) { return syscall(SYS_munmap, at, bytes); }
int mprotect(void *at, size_t bytes, int protection) { return syscall(SYS_mprotect, at, bytes, protection); }
int madvise(void *at, size_t bytes, int advice) { return syscall(SYS_madvise, at, bytes, advice); }
int mlock(const void *at, size_t bytes) { return syscall(SYS_mlock, at, bytes); }
ssize_t read(int fd, void *to, size_t bytes) { return syscall(SYS_read, fd, to, bytes); }
ssize_t write(int fd, const void *from, size_t bytes) { return syscall(SYS_write, fd, from, bytes); }
ssize_t __read(int, void *, size_t);
ssize_t __write(int, const void *, size_t);

/* By some other library's names. C23's is there where somebody has it. */
extern void free_sized(void *, size_t) __attribute__((weak));

static void calls(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY);
    fstat(fd, &about);
    char *file = mmap(NULL, about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    char *memory = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned sum = 0;
    for (off_t at = 0; at < about.st_size; at += 4096)
        sum = sum * 31 + (unsigned char)file[at];
    printf("sum %u\n", sum);
    printf("read %d\n", (int)read(fd, memory + 5, 4 << 20));
    printf("__read %d\n", (int)__read(fd, memory + (4 << 20), 100000));
    printf("same %d\n", memcmp(memory + 5, file, 4 << 20));
    fflush(stdout);
    int null = open("/dev/null", O_WRONLY);
    printf("write %d\n", (int)write(null, file + 8192, 100000));
    printf("__write %d\n", (int)__write(null, file + (1 << 20), 100000));
    printf("madvise %d\n", madvise(memory, 1 << 20, MADV_DONTNEED));
    printf("mlock %d\n", mlock(memory, 8192));
    printf("mprotect %d\n", mprotect(memory, 8 << 20, PROT_READ));
    printf("bytes %d %d\n", memory[5], memory[2 << 20]);
    printf("munmap %d %d\n", munmap(memory, 8 << 20), munmap(file, about.st_size));
}

static void blocks(const char *path)
{
    char *block = NULL;
    for (size_t count = 1; count < 3 << 20; count *= 3) {
        block = reallocarray(block, count, 2);
        block[2 * count - 1] = 7;
    }
    printf("%p\n", reallocarray(block, (size_t)1 << 62, 8));
    free(block);
    for (size_t bytes = 1; bytes < 8 << 20; bytes *= 5) {
        void *other = malloc(bytes);
        memset(other, 1, bytes);
        free_sized ? free_sized(other, bytes) : free(other);
    }
    FILE *file = fopen(path, "r");
    printf("%d\n", fgetc(file));
    fclose(file);
}

int main(int arguments, char **argument)
{
    if (arguments != 3)
        return 2;
    (strcmp(argument[1], "calls") ? blocks : calls)(argument[2]);
    return 0;
}
