/* Something else is mapped where a file was a moment ago, and the file again: `places FILE`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int count, char **arguments)
{
    struct stat about;
    int fd = open(arguments[1], O_RDONLY);
    uint64_t hash = 0, wrong = 0;
    if (count < 2 || fd < 0 || fstat(fd, &about) < 0)
        return 2;
    size_t size = about.st_size;
    for (int round = 0; round < 6; round++) {
        int sharing = round % 3 ? MAP_SHARED : MAP_PRIVATE;
        unsigned char *file = mmap(NULL, size, PROT_READ, sharing, fd, 0);
        for (size_t i = 0; i < size; i += 509)
            hash = hash * 31 + file[i];
        munmap(file, size);
        size_t bytes = round % 2 ? size : size / 4;
        unsigned char *over = mmap(file, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (over != file)
            return 3;
        memset(over, round + 1, bytes);
        file = mmap(NULL, size, PROT_READ, sharing, fd, 0);
        for (size_t i = 0; i < size; i += 509)
            hash = hash * 31 + file[i];
        for (size_t i = 0; i < bytes; i++)
            wrong += over[i] != round + 1;
        munmap(file, size);
        for (size_t i = 0; i < bytes; i++)
            wrong += over[i] != round + 1;
        munmap(over, bytes);
    }
    printf("hash %llx, wrong %llu\n", (unsigned long long)hash, (unsigned long long)wrong);
    return 0;
}
