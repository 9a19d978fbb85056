/* A parent and its child read a file by mappings of their own, and go on until the standard input ends: `reports FILE [HOW]`.
 * With a second argument the file is open for writing, too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

int main(int count, char **arguments)
{
    int flags = count > 2 ? O_RDWR : O_RDONLY;
    unsigned before = sum(arguments[1], flags);
    pid_t child = fork();
    /* The pipe ends here, although the process goes on. */
    printf("%d %d\n", child, sum(arguments[1], flags) == before);
    fclose(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
