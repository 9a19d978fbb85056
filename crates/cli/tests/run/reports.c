/* A parent and its child read a file by mappings of their own, and go on until the standard input ends: `reports FILE`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned sum(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY);
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
    (void)count;
    unsigned before = sum(arguments[1]);
    pid_t child = fork();
    /* The pipe ends here, although the process goes on. */
    printf("%d %d\n", child, sum(arguments[1]) == before);
    fclose(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
