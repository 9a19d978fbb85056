/* A parent and its child read a file by mappings of their own, and go on until the standard input ends: `reports FILE`.
 * `reports FILE writes`: the file is open for writing, too. `reports FILE late`: one process, which is at its end for as long as
 * nobody reads what it prints. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned sum(const char *path, int flags)
{
    struct stat about;
    int fd = open(path, flags);
    fstat(fd, &about);
    const unsigned char *bytes = mmap(NULL, about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        exit(2);
    unsigned sum = 0;
    for (off_t at = 0; at < about.st_size; at += 4096)
        sum += bytes[at];
    return sum;
}

/* The last thing that a process does is to write what is in this: more than a pipe has room for. */
static char output[1 << 20];

int main(int count, char **arguments)
{
    const char *how = count > 2 ? arguments[2] : "";
    int flags = strcmp(how, "writes") ? O_RDONLY : O_RDWR;
    unsigned before = sum(arguments[1], flags);
    if (!strcmp(how, "late")) {
        setvbuf(stdout, output, _IOFBF, sizeof output);
        for (int i = 0; i < 1 << 18; i++)
            putchar('x');
        return 0;
    }
    pid_t child = fork();
    /* The pipe ends here, although the process goes on. */
    printf("%d %d\n", child, sum(arguments[1], flags) == before);
    fclose(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
